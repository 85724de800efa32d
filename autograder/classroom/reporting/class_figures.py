"""Count what a class has got: points, each question, sections and time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from autograder.assignment import Assignment
from autograder.classroom.standing import Standing
from autograder.result import Answer, Result

BARS = 10
NOT_WRITTEN = ("Not written yet", "There is no ")
"""How messages about functions begin that nobody has written."""


@dataclass(frozen=True)
class Spread:
    """How numbers are spread; `count` of them, at least one."""

    count: int
    minimum: float
    median: float
    mean: float
    most: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Spread | None:
        """Compute it; None if there are no numbers."""
        ordered = sorted(numbers)
        if not ordered:
            return None
        middle, mean = statistics.median(ordered), statistics.fmean(ordered)
        return cls(len(ordered), ordered[0], middle, mean, ordered[-1])


@dataclass(frozen=True)
class Bar:
    """How many students have points in a range, which `label` names."""

    label: str
    students: int


def points_in_bars(points: Sequence[float], most: float) -> list[Bar]:
    """Count students by their points: in ten ranges of equal width, and all points by themselves."""
    width = most / BARS
    # The small number is for sums of thirds, which end beside a bound.
    counts = Counter(max(0, min(BARS, int(value / width + 1e-9))) for value in points)
    labels = [f"{n * width:g} to under {(n + 1) * width:g}" for n in range(BARS)]
    return [Bar(label, counts[n]) for n, label in enumerate([*labels, f"all {most:g}"])]


@dataclass(frozen=True)
class QuestionFigures:
    """How many students have got what of one question. Each is counted once.

    Attributes:
        check: its name.
        points: that it is worth.
        full, part, lost: all of the points, some, none.
        credited: points for it with the mistake of another cell put right.
        not_written: its functions are as they were given out, or are not there.
    """

    check: str
    points: float
    full: int = 0
    part: int = 0
    credited: int = 0
    lost: int = 0
    not_written: int = 0

    @property
    def students(self) -> int:
        return self.full + self.part + self.credited + self.lost + self.not_written

    @property
    def remark(self) -> str:
        """That everybody or nobody gets it, if so."""
        if self.students and self.full + self.credited == self.students:
            return "everybody"
        if self.students and not self.full + self.credited + self.part:
            return "nobody"
        return ""


def question_figures(assignment: Assignment, results: Iterable[Result]) -> list[QuestionFigures]:
    """Count every question of a lesson, in its order."""
    counts: dict[str, Counter[str]] = {q.check: Counter() for q in assignment.questions}
    for result in results:
        for answer in result.answers:
            counts[answer.check][kind_of(answer)] += 1
    return [QuestionFigures(q.check, q.points, **counts[q.check]) for q in assignment.questions]


def kind_of(answer: Answer) -> str:
    """Name the column of `QuestionFigures` in which an answer is counted."""
    if answer.credited:
        return "credited"
    if answer.score == 1:
        return "full"
    if answer.score > 0:
        return "part"
    return "not_written" if answer.message.startswith(NOT_WRITTEN) else "lost"


def by_section(table: Sequence[Standing]) -> dict[str, list[Standing]]:
    """Group a class by the sections of its roster, by name; {} where it has none."""
    sections = sorted({standing.student.section for standing in table}, key=lambda s: (not s, s))
    if not any(sections):
        return {}
    return {name: [s for s in table if s.student.section == name] for name in sections}


@dataclass(frozen=True)
class Day:
    """What was handed in on one day, in UTC."""

    day: date
    students: int
    late: int


def handed_in_by_day(table: Iterable[Standing]) -> list[Day]:
    """Count the submissions whose time is known, by day."""
    dated = [standing for standing in table if standing.handed_in]
    days = sorted({standing.handed_in.date() for standing in dated})
    on = {day: [s for s in dated if s.handed_in.date() == day] for day in days}
    return [
        Day(day, len(those), sum(s.seconds_late > 0 for s in those)) for day, those in on.items()
    ]


def seconds_by_part(results: Sequence[Result]) -> dict[str, Spread]:
    """Measure what judging took, by part, and then all of it."""
    parts = list(dict.fromkeys(part for result in results for part in result.seconds))
    spreads = {
        part: Spread.of(r.seconds[part] for r in results if part in r.seconds) for part in parts
    }
    whole = Spread.of(sum(r.seconds.values()) for r in results if r.seconds)
    return {**spreads, "all of it": whole} if whole else {}
