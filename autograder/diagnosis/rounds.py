"""Put every check to every known wrong answer of its lesson."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tqdm.auto import tqdm

from autograder.diagnosis.comparison import Reply
from autograder.diagnosis.replies import candidates
from autograder.lessons import find, hidden_checks, lesson_folders
from autograder.lessons.exhibits import Bug
from course.checks.check import Challenge, Check

LESSONS = lesson_folders()
SEEDS = (1, 2)
CHALLENGES = 6
"""Of each check, by which `losses.json` tells what a mistake loses always and what sometimes."""


@dataclass(frozen=True)
class Round:
    """One check at one seed, tried on every bug of its lesson.

    Attributes:
        caught: the bugs that lost points, with their replies.
    """

    lesson: str
    check: str
    seed: int
    challenge: Challenge = field(repr=False)
    caught: list[tuple[Bug, Reply]] = field(repr=False)

    def is_named_by(self, bug: Bug) -> bool:
        """Tell whether this is the check that must catch that bug."""
        return bug.check == f"{self.lesson}.{self.check}"


def play(seeds: Iterable[int] = SEEDS, lessons: Iterable[str] = LESSONS) -> list[Round]:
    """Try every check of these lessons on every bug of its lesson."""
    plans = [
        (lesson, check, seed) for lesson in lessons for check in checks_of(lesson) for seed in seeds
    ]
    rounds = []
    for lesson, name, seed in tqdm(plans, unit="round", disable=None):
        check = find(f"{lesson}.{name}")
        challenge = check.challenge(seed)
        known = candidates(lesson, name, challenge)
        caught = [(bug, reply) for bug, reply in known if is_wrong(check, challenge, reply)]
        rounds.append(Round(lesson, name, seed, challenge, caught))
    return rounds


def checks_of(lesson: str) -> list[str]:
    """List the names of the hidden checks, in the order of the lesson."""
    return list(hidden_checks(lesson))


def is_wrong(check: Check, challenge: Challenge, reply: Reply) -> bool:
    """Tell whether a reply loses points, as the judge decides."""
    if reply.get("error") is not None:
        return True
    try:
        return check.decide(challenge, reply["evidence"], reply["broken"]).score < 1
    except Exception:  # evidence that cannot be compared
        return True
