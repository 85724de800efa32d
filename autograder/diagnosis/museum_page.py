"""Write docs/museum.md: which check catches which bug, and how many a diagnosis recognises.

autograder museum [LESSON…] [--challenges N]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from autograder import wire
from autograder.diagnosis import grading_tables
from autograder.diagnosis.comparison import Reply
from autograder.diagnosis.grading_tables import assignment_of, with_tables
from autograder.diagnosis.losses import losses_text, path_of
from autograder.diagnosis.recognize import Diagnosis, name_mistake
from autograder.diagnosis.replies import answer
from autograder.diagnosis.rounds import CHALLENGES, LESSONS, SEEDS, Round, checks_of, play
from autograder.follow_through import cells_to_replace
from autograder.lessons import find
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of, variants_of
from autograder.lessons.reach import within_reach
from course.checks.check import Check

FILE = Path(__file__).parents[2] / "docs" / "museum.md"


# What is recognised


def outcome(bug: Bug, found: Diagnosis | None) -> str:
    """Grade a diagnosis of a known bug: "mistake", "family", "wrong" or "nothing"."""
    if found is None:
        return "nothing"
    if found.family != bug.family:
        return "wrong"
    return "mistake" if found.bug == bug.name else "family"


STYLES = "in a notebook whose other functions are in another style"
OWN = "left out of the museum, at its own check"
OTHERS = "left out of the museum, at the other checks that catch it"


def recognition(rounds: list[Round]) -> dict[str, Counter[str]]:
    """Count the outcomes of diagnoses, in each of three cases."""
    return {
        STYLES: in_other_styles(rounds),
        OWN: leave_one_out(rounds, named=True),
        OTHERS: leave_one_out(rounds, named=False),
    }


def leave_one_out(rounds: list[Round], named: bool) -> Counter[str]:
    """Diagnose every bug by the rest of the museum, as if that bug were not known.

    Args:
        named: only at the check that must catch the bug, or else at all others that caught it.
    """
    seen: Counter[str] = Counter()
    lost = Lost(rounds)
    for played in rounds:
        for bug, reply in played.caught:
            if played.is_named_by(bug) == named and not lost.is_credited(played, bug):
                others = [known for known in lost.suspects(played, bug) if known[0] is not bug]
                found = outcome(bug, name_mistake(others, reply))
                seen["family" if found == "mistake" else found] += 1
    return seen


def in_other_styles(rounds: list[Round]) -> Counter[str]:
    """Diagnose every bug at its check in notebooks whose other functions are in another style. At one
    seed: there are thousands of these notebooks."""
    seen: Counter[str] = Counter()
    lost = Lost(rounds)
    for played in (played for played in rounds if played.seed == rounds[0].seed):
        check = find(f"{played.lesson}.{played.check}")
        frame = wire.encode(played.challenge)
        for bug, names in restyled(played, check):
            reply = answer(check, names, frame)
            seen[outcome(bug, name_mistake(lost.suspects(played, bug), reply))] += 1
    return seen


class Lost:
    """Which checks each bug lost, and at how many seeds."""

    def __init__(self, rounds: list[Round]) -> None:
        self._times = Counter(
            (played.lesson, bug.name, played.check) for played in rounds for bug, _ in played.caught
        )
        self._seeds = len({played.seed for played in rounds})

    def is_credited(self, played: Round, bug: Bug) -> bool:
        """Tell whether follow-through credits this check: then nothing is named there."""
        asked = assignment_of(played.lesson)
        lost = [q for q in asked.questions if self._times[played.lesson, bug.name, q.check]]
        wrong = {name for name, defined in asked.answers.items() if defined & set(bug.answer)}
        (question,) = [q for q in asked.questions if q.check == played.check]
        return wrong <= cells_to_replace(asked, question, lost, ())

    def suspects(self, played: Round, bug: Bug) -> list[tuple[Bug, Reply]]:
        """List what the judge would suspect of a notebook with this bug: it passes all checks that the
        bug never lost, and no mistake is suspected that always loses one of them."""
        lesson = played.lesson
        passed = [check for check in checks_of(lesson) if not self._times[lesson, bug.name, check]]
        return [
            (other, reply)
            for other, reply in played.caught
            if all(self._times[lesson, other.name, check] < self._seeds for check in passed)
        ]


def restyled(played: Round, check: Check) -> Iterator[tuple[Bug, dict]]:
    """Combine the bugs that this check must catch with every variant of other functions in reach."""
    reach = within_reach(played.lesson, check.needs)
    for bug, _ in played.caught:
        for variant in variants_of(played.lesson) if played.is_named_by(bug) else []:
            names = set(variant.answer)
            if names & reach and not names & set(bug.answer):
                yield bug, assemble(played.lesson, {**variant.answer, **bug.answer})


# The file


def render(rounds: list[Round], seen: dict[str, Counter[str]]) -> str:
    """Write the page from the rounds and what was recognised in them."""
    seeds = len({played.seed for played in rounds})
    parts = [HEAD.format(seeds=seeds), families(), *recognised(seen)]
    for lesson in LESSONS:
        parts += lesson_table([played for played in rounds if played.lesson == lesson])
    return "\n".join(parts) + "\n"


HEAD = """# The museum

Known wrong answers, and which hidden check catches which. Written by `autograder museum`;
a test says when it is out of date. Each bug met {seeds} challenges of each check:

* **X** it lost points every time, at the check that must catch it;
* x it lost points every time, o sometimes;
* nothing: its numbers were right there.

## Families

What mistakes are about: a diagnosis records the family, so that a class can be counted.

| family | is about | bugs |
|---|---|---|"""


def families() -> str:
    """Write the rows of the table of families."""
    count = Counter(bug.family for lesson in LESSONS for bug in bugs_of(lesson))
    return "\n".join(f"| {name} | {about} | {count[name]} |" for name, about in FAMILIES.items())


def recognised(cases: dict[str, Counter[str]]) -> list[str]:
    """Write the table of how good the diagnosis is."""
    columns = ("mistake", "family", "wrong", "nothing")
    lines = [
        "\n## What a diagnosis recognises\n",
        "A wrong answer is compared with all bugs of its lesson on the same challenge. How often the",
        "mistake is named, its family alone, a wrong family, or nothing, for each bug and challenge:\n",
        "| a bug | mistake | family | wrong | nothing |\n|---|---|---|---|---|",
    ]
    for case, seen in cases.items():
        lines.append(f"| {case} | {' | '.join(str(seen[name]) for name in columns)} |")
    return lines


def lesson_table(rounds: list[Round]) -> list[str]:
    """Write one lesson's part: its checks, numbered, and a row for each bug."""
    lesson = rounds[0].lesson
    checks = checks_of(lesson)
    lines = [f"\n## {LESSONS[lesson]}\n"]
    lines += [f"{number}. `{check}`" for number, check in enumerate(checks, 1)]
    numbers = range(1, len(checks) + 1)
    lines += [f"\n| bug | family | {' | '.join(map(str, numbers))} | story |"]
    lines += [f"|---|---|{'---|' * len(checks)}---|"]
    for bug in bugs_of(lesson):
        cells = [mark(bug, [r for r in rounds if r.check == check]) for check in checks]
        story = bug.story.replace("|", "\\|")
        lines.append(f"| {bug.name} | {bug.family} | {' | '.join(cells)} | {story} |")
    return lines


def mark(bug: Bug, rounds: list[Round]) -> str:
    """Mark what became of a bug at one check."""
    times = sum(bug is other for played in rounds for other, _ in played.caught)
    if times < len(rounds):
        return "o" if times else " "
    return "**X**" if rounds[0].is_named_by(bug) else "x"


def losses_in(lesson: str, rounds: list[Round]) -> str:
    """Write the file that tells which checks each bug of a lesson lost."""
    lost = []
    for check in checks_of(lesson):
        played = [one for one in rounds if (one.lesson, one.check) == (lesson, check)]
        lost.append((check, [bug for one in played for bug, _ in one.caught], len(played)))
    return losses_text(lesson, lost)


def write_losses(rounds: Iterable[Round], lessons: Iterable[str]) -> None:
    """Write the files that tell what the bugs of these lessons lost."""
    for lesson in lessons:
        path_of(lesson).write_text(losses_in(lesson, rounds), encoding="utf-8")
        print(f"wrote {path_of(lesson)}")


def main(arguments: list[str]) -> int:
    """Play all rounds; write the page, the losses of each lesson, and the tables about grading."""
    parser = argparse.ArgumentParser(prog="autograder museum", description=__doc__)
    parser.add_argument(
        "lessons", nargs="*", help="such as kv_cache: write the losses of these alone, and no page"
    )
    parser.add_argument(
        "--challenges",
        type=int,
        default=CHALLENGES,
        metavar="N",
        help="of each check, from which the losses are written (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    if given.challenges < len(SEEDS):
        parser.error(f"--challenges must be at least {len(SEEDS)}, got {given.challenges}")
    if unknown := [name for name in given.lessons if name not in LESSONS]:
        parser.error(f"no lesson {unknown[0]!r}; there are {', '.join(LESSONS)}")
    seeds = range(1, given.challenges + 1)
    if given.lessons:
        write_losses(play(seeds, given.lessons), given.lessons)
        return 0
    everything = play()
    FILE.write_text(render(everything, recognition(everything)), encoding="utf-8")
    page = grading_tables.FILE.read_text(encoding="utf-8")
    grading_tables.FILE.write_text(with_tables(page, everything), encoding="utf-8")
    print(f"wrote {FILE} and the tables of {grading_tables.FILE}")
    write_losses(everything + play(seeds[len(SEEDS) :]), LESSONS)
    return 0
