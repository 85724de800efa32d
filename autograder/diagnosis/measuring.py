"""Measure a lesson's museum: which check catches which bug, and how many bugs a diagnosis recognizes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from autograder import wire
from autograder.diagnosis import comparison, deciding, recognize
from autograder.diagnosis.catches import ALWAYS, SOMETIMES, Catches, suspects
from autograder.diagnosis.deciding import Deciding
from autograder.diagnosis.grading_tables import credited_checks
from autograder.diagnosis.known_replies import deciding_about
from autograder.diagnosis.recognize import Diagnosis, name_mistake
from autograder.diagnosis.relations import calls_of
from autograder.lessons import canonical_form, hidden_checks
from autograder.lessons.assembly import answer_cells
from autograder.lessons.exhibits import Bug, bugs_of, variants_of
from autograder.lessons.reach import reached_by, within_reach
from autograder.run_record import Reply, RunRecord, decide, run
from autograder.sources import digest_of, texts_of
from course.checks.relations.to_right import relations_to

SEEDS = (1, 2)
"""At these, replies are compared for what a diagnosis recognizes."""
CHALLENGES = 6
"""Of each check, by which it is told what catches a bug always and what sometimes."""
FEW = 0.1
"""The part of the other bugs of a check that may get the same words where these are telling."""
NUMBERS = re.compile(r"[-−]?[\d.,…]+|\b(?:nan|inf|True|False)\b")
KNOWN = "in the lesson's own notebook, at its own check"
STYLES = "in a notebook whose other functions are in another style"
OWN = "left out of the museum, at its own check"
OTHERS = "left out of the museum, at the other checks that catch it"


@dataclass(frozen=True)
class Round:
    """One check at one seed, tried on every bug of its lesson.

    Attributes:
        caught: the bugs that lost points, with their replies.
        deciding: compares replies by what decides.
    """

    lesson: str
    check: str
    seed: int
    caught: list[tuple[Bug, Reply]] = field(repr=False)
    deciding: Deciding = field(repr=False)

    def is_named_by(self, bug: Bug) -> bool:
        """Tell whether this is the check that must catch that bug."""
        return bug.check == f"{self.lesson}.{self.check}"


def digest_of_museum(lesson: str) -> str:
    """Digest what the measurements of a lesson's museum rest on."""
    exhibits = (f"autograder.lessons.{lesson}.{part}" for part in ("museum", "variants"))
    compared = (__name__, *(module.__name__ for module in (comparison, deciding, recognize)))
    modules = (*exhibits, *compared, relations_to.__module__.rpartition(".")[0])
    texts = [text for name in modules for text in texts_of(name)]
    checks = hidden_checks(lesson).values()
    forms = [form for check in checks if (form := canonical_form(lesson, check.name))]
    return digest_of([*checks, run, decide, *forms], texts=[*answer_cells(lesson, {}), *texts])[:16]


def measure(lesson: str, record: RunRecord, challenges: int = CHALLENGES) -> dict[str, Any]:
    """Put every check of a lesson to every bug of it; return what `museum.json` holds.

    Args:
        challenges: of each check; the first of them, SEEDS, serve recognition as well.
    """
    seeds = range(1, challenges + 1)
    rounds = list(play(lesson, record, seeds))
    catches = catches_in(lesson, rounds)
    compared = [played for played in rounds if played.seed in SEEDS]
    return {
        "sources": digest_of_museum(lesson),
        "recognized": {
            **recognition(lesson, compared, catches),
            STYLES: in_other_styles(record, compared, catches),
        },
        "told": told(lesson, record, compared[0].seed, compared),
        "catches": catches,
    }


def as_text(measured: Mapping[str, Any]) -> str:
    """Write the measurements of a museum as JSON, each bug on one line."""
    lines = [f"  {json.dumps(n)}: {json.dumps(c)}" for n, c in measured["catches"].items()]
    head = {name: measured[name] for name in ("sources", "recognized", "told")}
    head = json.dumps(head, indent=1)
    return f'{head[:-2]},\n "catches": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def play(lesson: str, record: RunRecord, seeds: Iterable[int]) -> Iterator[Round]:
    """Try every check of a lesson on every bug that it reaches."""
    checks = hidden_checks(lesson)
    plans = [(check, seed) for check in checks.values() for seed in seeds]
    for check, seed in tqdm(plans, desc=lesson, unit="round", disable=None):
        challenge = check.challenge(seed)
        right = record.ask(lesson, {}, check, seed)
        passes, caught = wire.encode(right), []
        for bug in reached_by(lesson, check.needs, bugs_of(lesson)):
            reply = record.ask(lesson, bug.answer, check, seed)
            if wire.encode(reply) != passes and decide(check, challenge, reply).score < 1:
                caught.append((bug, reply))
        about = deciding_about(lesson, check, challenge, right)
        yield Round(lesson, check.name, seed, caught, about)


def catches_in(lesson: str, rounds: list[Round]) -> Catches:
    """Count at how many seeds each check caught each bug."""
    seeds = len({played.seed for played in rounds})
    times = Counter((bug.name, played.check) for played in rounds for bug, _ in played.caught)
    return {
        bug.name: {
            check: ALWAYS if times[bug.name, check] == seeds else SOMETIMES
            for check in hidden_checks(lesson)
            if times[bug.name, check]
        }
        for bug in bugs_of(lesson)
    }


def recognition(
    lesson: str, rounds: Iterable[Round], catches: Catches
) -> dict[str, dict[str, int]]:
    """Count the outcomes of diagnoses of a lesson's bugs, in each of three cases."""
    counted: dict[str, Counter[str]] = {name: Counter() for name in (KNOWN, OWN, OTHERS)}
    for played in rounds:
        for bug, reply in played.caught:
            named = played.is_named_by(bug)
            if named:
                counted[KNOWN][
                    outcome(bug, name_mistake(played.caught, reply, played.deciding))
                ] += 1
            if played.check in credited_checks(lesson, bug, catches):
                continue  # what follow-through credits needs no name
            others = [known for known in _suspected(played, bug, catches) if known[0] is not bug]
            result = outcome(bug, name_mistake(others, reply, played.deciding))
            counted[OWN if named else OTHERS]["family" if result == "mistake" else result] += 1
    return {name: dict(sorted(counter.items())) for name, counter in counted.items()}


def in_other_styles(record: RunRecord, rounds: Sequence[Round], catches: Catches) -> dict[str, int]:
    """Count the outcomes of diagnoses where the notebook's other functions are in another style. At one
    seed: there are thousands of these notebooks."""
    counted: Counter[str] = Counter()
    for played in (played for played in rounds if played.seed == rounds[0].seed):
        for bug, reply in _restyled(played, record):
            named = name_mistake(_suspected(played, bug, catches), reply, played.deciding)
            counted[outcome(bug, named)] += 1
    return dict(sorted(counted.items()))


def told(lesson: str, record: RunRecord, seed: int, rounds: Iterable[Round]) -> dict[str, int]:
    """Count what a student is told whose mistake is in no museum, of every bug at the check that must
    catch it: how many get a relation, or the house rule that was broken; and how many get words, the
    numbers left out, that no more than FEW of the other bugs get there."""
    counted = Counter(bugs=0, relation=0, telling=0)
    for played in (played for played in rounds if played.seed == seed):
        check = hidden_checks(lesson)[played.check]
        challenge = check.challenge(seed)
        calls = calls_of(lesson, check, challenge)
        right = record.ask(lesson, {}, check, seed)["evidence"]
        messages = []
        for _, reply in filter(lambda one: played.is_named_by(one[0]), played.caught):
            with np.errstate(all="ignore"):
                said = "evidence" in reply and relations_to(
                    right, reply["evidence"], check, challenge, calls
                )
            counted["relation"] += bool(said or reply.get("broken"))
            words = [relation.words for relation in said or ()]
            own = reply.get("error") or decide(check, challenge, reply).message
            messages.append(NUMBERS.sub("", f"{own} {words}"))
        times, others = Counter(messages), len(messages) - 1
        counted["bugs"] += len(messages)
        counted["telling"] += sum(times[one] - 1 <= FEW * others for one in messages)
    return dict(counted)


def outcome(bug: Bug, diagnosis: Diagnosis | None) -> str:
    """Grade a diagnosis of a known bug: "mistake", "family", "wrong" or "nothing"."""
    if diagnosis is None:
        return "nothing"
    if diagnosis.family != bug.family:
        return "wrong"
    return "mistake" if diagnosis.bug == bug.name else "family"


def _suspected(played: Round, bug: Bug, catches: Catches) -> list[tuple[Bug, Reply]]:
    """List what the judge would suspect of a notebook with this bug, which passes every check that never
    caught it."""
    passed = set(hidden_checks(played.lesson)) - set(catches[bug.name])
    names = {bug.name for bug in suspects(played.lesson, played.check, passed, catches)}
    return [(other, reply) for other, reply in played.caught if other.name in names]


def _restyled(played: Round, record: RunRecord) -> Iterator[tuple[Bug, Reply]]:
    """Combine the bugs that this check must catch with every variant of other functions in reach."""
    check = hidden_checks(played.lesson)[played.check]
    reach = within_reach(played.lesson, check.needs)
    for bug, _ in played.caught:
        for variant in variants_of(played.lesson) if played.is_named_by(bug) else []:
            names = set(variant.answer)
            if names & reach and not names & set(bug.answer):
                answer = {**variant.answer, **bug.answer}
                yield bug, record.ask(played.lesson, answer, check, played.seed)
