"""Say what the judge found in one submission: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The three outcomes of a submission, and of a question. Each ends in exactly one."""

    SCORE = "SCORE"
    """It was judged."""
    STUDENT_FAULT = "STUDENT_FAULT"
    """It could not be judged, by the student's doing: no points, and a reason."""
    INFRA_ERROR = "INFRA_ERROR"
    """It could not be judged, and the student has no part in that: no grade at all."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question. `score` is the part of `max_points` earned, 0 … 1; `bug` and
    `family` say which mistake of the museum was recognised, if any; `credited` says that it was earned
    with another cell put right."""

    check: str
    outcome: Outcome
    score: float
    max_points: float
    message: str
    bug: str = ""
    family: str = ""
    credited: bool = False

    @property
    def points(self) -> float:
        return self.score * self.max_points


@dataclass(frozen=True)
class Result:
    """The result of one submission: plain data.

    Attributes:
        outcome: SCORE, or why there is no grade for the whole of it; then `reason` says more.
        submission: SHA-256 of the file, or "" when it could not be read.
        answers: one for each question of the lesson, in its order.
        cells: what went wrong in the student's own cells, one line each.
        output: what the student's process wrote, cut.
        skipped: how many of the lesson's own cells, on which no answer rests, did not run.
        untouched: every code cell is the lesson's own, as it was released.
        seconds: that its parts took.
    """

    lesson: str
    outcome: Outcome
    reason: str
    submission: str
    answers: tuple[Answer, ...]
    cells: tuple[str, ...] = ()
    output: str = ""
    skipped: int = 0
    untouched: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def points(self) -> float:
        return sum(answer.points for answer in self.answers)
