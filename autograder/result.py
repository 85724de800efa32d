"""The result of judging one submission, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a submission or of a question: exactly one of three."""

    SCORE = "SCORE"
    """It was judged."""
    STUDENT_FAULT = "STUDENT_FAULT"
    """It could not be judged because of the student's code or file: no points, and a reason."""
    INFRA_ERROR = "INFRA_ERROR"
    """It could not be judged because the machine or the judge failed: no grade at all."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    Attributes:
        score: the part of `max_points` that was earned, 0 … 1.
        bug, family: the mistake of the museum that was recognised, if any.
        credited: whether points are given though the question failed: since it passes with another cell
            put right, since a house rule has cost its points elsewhere, or since a known mistake has.
        cell: the number of the student's cell after which it was asked; 0 where that is not known.
        challenge: the number of the challenge that lost it, from which its seed is drawn.
    """

    check: str
    outcome: Outcome
    score: float
    max_points: float
    message: str
    bug: str = ""
    family: str = ""
    credited: bool = False
    cell: int = 0
    challenge: int | None = None

    @property
    def points(self) -> float:
        return self.score * self.max_points


@dataclass(frozen=True)
class Result:
    """The result of one submission: plain data.

    Attributes:
        outcome: SCORE, or else `reason` says why there is no grade.
        submission: the SHA-256 of the file, or "" if it could not be read.
        answers: one for each question of the lesson, in its order.
        cells: the errors of the student's cells, one line each.
        output: the output of the student's process, truncated.
        skipped: how many of the lesson's own cells did not run, since no answer needs them.
        untouched: whether every code cell is as it was released.
        timed_out: whether a cell, a question or the whole notebook used up its time.
        seconds: the time of each part.
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
    timed_out: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def points(self) -> float:
        return sum(answer.points for answer in self.answers)
