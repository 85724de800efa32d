"""Write docs/museum.md: which check catches which bug, and how many a diagnosis recognizes.

autograder museum [LESSON…] [--challenges N]
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from autograder.diagnosis import grading_tables
from autograder.diagnosis.catches import ALWAYS, catches_of, measured, path_of
from autograder.diagnosis.grading_tables import with_tables
from autograder.diagnosis.measuring import (
    CHALLENGES,
    KNOWN,
    OTHERS,
    OWN,
    SEEDS,
    STYLES,
    as_text,
    digest_of_museum,
    measure,
)
from autograder.lessons import hidden_checks, lesson_folders, lesson_named
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of
from autograder.run_record import FOLDER, RunRecord
from course.files.writing import write_whole

FILE = Path(__file__).parents[2] / "docs" / "museum.md"
FILE_OF_UNSEEN = Path(__file__).with_name("unseen.toml")
UNSEEN = ("answers", "caught", "named", "told", "read", "found", "wrong")
"""What is counted of a trial with answers that are in no museum."""
LESSONS = lesson_folders()


def render() -> str:
    """Write the page from what was measured of each lesson's museum."""
    parts = [HEAD.format(seeds=CHALLENGES), families(), *recognized(), *unseen()]
    for lesson in LESSONS:
        parts += lesson_table(lesson)
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


def outcomes(case: str) -> Counter[str]:
    """Add up the outcomes of diagnoses in one of the cases over all lessons."""
    total: Counter[str] = Counter()
    for lesson in LESSONS:
        total.update(measured(lesson)["recognized"].get(case, {}))
    return total


def recognized() -> list[str]:
    """Write the table of how good the diagnosis is."""
    columns = ("mistake", "family", "wrong", "nothing")
    lines = [
        "\n## What a diagnosis recognizes\n",
        "A wrong answer is compared with all bugs of its lesson on the same challenge. How often the",
        "mistake is named, its family alone, a wrong family, or nothing, for each bug and challenge:\n",
        "| a bug | mistake | family | wrong | nothing |\n|---|---|---|---|---|",
    ]
    for case in (KNOWN, STYLES, OWN, OTHERS):
        total = outcomes(case)
        lines.append(f"| {case} | {' | '.join(str(total[name]) for name in columns)} |")
    told = Counter[str]()
    for lesson in LESSONS:
        told.update(measured(lesson)["told"])
    lines += [
        "\nA student whose mistake is in no museum reads the check's own message. Of",
        f"{told['bugs']:,} bugs, at the check that must catch them, {told['relation']:,} also get a",
        "sentence that is true of their numbers, or names a rule of the house that they broke. What is",
        "said, the numbers left out, is said of no more than a tenth of the other bugs of that check for",
        f"{told['telling']:,} of them.",
    ]
    return lines


def unseen() -> list[str]:
    """Write what was counted of wrong answers that are in no museum."""
    trial = read_unseen()
    lines = [
        "\n## Answers that it had never seen\n",
        f"On {trial['date']}, wrong answers that were written from the released notebooks alone were",
        "judged (`autograder diagnose`). The mistake was *named*, or else a relation was *told* that is",
        "true of the numbers. Readers who knew the right answers, but not what was changed, *read* the",
        "messages and said which line is wrong: *found* counts where that was so. Others read each",
        "message beside the wrong answer. *wrong* counts where either of them met something that is not",
        "true or misleads, in small things, too: a name that fits the numbers and not the line, a",
        "question that takes the mistake to be elsewhere. The authors were asked for the mistakes that",
        "students make most often.\n",
        f"| lesson | {' | '.join(UNSEEN)} |\n|---|{'---|' * len(UNSEEN)}",
    ]
    rows = {**{LESSONS[name]: row for name, row in trial["lessons"].items()}, "all": trial["all"]}
    lines += [
        f"| {n} | {' | '.join(str(row[name]) for name in UNSEEN)} |" for n, row in rows.items()
    ]
    lines += [
        "\nOn 2026-11-27, 90 *right* answers to all lessons were written in styles as unlike ours as the",
        "text allows: all got full points. And 108 wrong ones were written that are right for nearly all",
        "inputs: 49 lost points, and 65 do since the checks were extended. The others are wrong where a",
        "number is infinite or NaN, beyond 64 bits, or rounded in the last digits; in recursions of a",
        "thousand calls; where two sizes coincide; or in what no lesson promises.",
    ]
    return lines


def read_unseen() -> dict[str, Any]:
    """Read the counts of the last trial with unseen answers, by lesson, and add them up."""
    trial = tomllib.loads(FILE_OF_UNSEEN.read_text(encoding="utf-8"))
    rows = trial["lessons"].values()
    return {**trial, "all": {name: sum(row[name] for row in rows) for name in UNSEEN}}


def lesson_table(lesson: str) -> list[str]:
    """Write one lesson's part: its checks, numbered, and a row for each bug."""
    checks = list(hidden_checks(lesson))
    lines = [f"\n## {LESSONS[lesson]}\n"]
    lines += [f"{number}. `{check}`" for number, check in enumerate(checks, 1)]
    numbers = range(1, len(checks) + 1)
    lines += [f"\n| bug | family | {' | '.join(map(str, numbers))} | story |"]
    lines += [f"|---|---|{'---|' * len(checks)}---|"]
    for bug in bugs_of(lesson):
        cells = [mark(lesson, bug, check) for check in checks]
        story = bug.story.replace("|", "\\|")
        lines.append(f"| {bug.name} | {bug.family} | {' | '.join(cells)} | {story} |")
    return lines


def mark(lesson: str, bug: Bug, check: str) -> str:
    """Mark what became of a bug at one check."""
    caught = catches_of(lesson).get(bug.name, {}).get(check)
    if caught != ALWAYS:
        return "o" if caught else " "
    return "**X**" if bug.check == f"{lesson}.{check}" else "x"


def main(arguments: list[str]) -> int:
    """Measure the museums whose sources changed, or those named; write the page and the tables."""
    parser = argparse.ArgumentParser(prog="autograder museum", description=__doc__)
    names = "such as 03 or 03-kv-cache; left out: those whose sources changed"
    parser.add_argument("lessons", nargs="*", type=lesson_named, help=names)
    parser.add_argument(
        "--challenges",
        type=int,
        default=CHALLENGES,
        metavar="N",
        help="of each check (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    if given.challenges < len(SEEDS):
        parser.error(f"--challenges must be at least {len(SEEDS)}, got {given.challenges}")
    changed = [name for name in LESSONS if measured(name)["sources"] != digest_of_museum(name)]
    record = RunRecord(FOLDER)
    for lesson in given.lessons or changed:
        write_whole(path_of(lesson), as_text(measure(lesson, record, given.challenges)).encode())
        print(f"wrote {path_of(lesson)}")
    measured.cache_clear()
    write_whole(FILE, render().encode())
    page = grading_tables.FILE.read_text(encoding="utf-8")
    write_whole(grading_tables.FILE, with_tables(page).encode())
    print(f"wrote {FILE} and the tables of {grading_tables.FILE}")
    return 0
