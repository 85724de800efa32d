"""List what every student got in a lesson and why, and how the term went so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from autograder.assignment import in_words
from autograder.classroom.reporting.class_mistakes import Work
from autograder.classroom.roster import Student
from autograder.classroom.standing import Standing, State
from autograder.lessons.exhibits import FAMILIES, Bug

FAR_BELOW = 3
"""The points below the median of those graded from which on a score is far below it."""


@dataclass(frozen=True)
class Row:
    """What one student got, and why.

    Attributes:
        work: what was handed in; None where that is nothing, or no notebook.
        lost: a line for each question that lost points, with the mistake where it is known.
    """

    standing: Standing
    work: Work | None
    lost: tuple[str, ...]


def everyone(table: Iterable[Standing], works: Iterable[Work], bugs: Sequence[Bug]) -> list[Row]:
    """List the class, in the order of the table."""
    mistakes = {bug.name: bug.mistake for bug in bugs}
    by_id = {work.student.id: work for work in works}
    return [
        Row(standing, by_id.get(standing.student.id), tuple(_lost(standing, mistakes)))
        for standing in table
    ]


def _lost(standing: Standing, mistakes: Mapping[str, str]) -> Iterable[str]:
    if standing.state != State.GRADED:
        return
    for answer in standing.result.answers:
        if answer.points < answer.max_points:
            words = mistakes.get(answer.bug) or (answer.family and FAMILIES[answer.family])
            yield in_words(answer.check) + (f": {words}" if words else "")


@dataclass(frozen=True)
class LessonInTerm:
    """How a lesson went.

    Attributes:
        graded, missing: how many students wrote something and are graded, and handed in nothing.
        median: of their scores; None where nobody is graded.
    """

    lesson: str
    graded: int
    missing: int
    median: float | None


@dataclass(frozen=True)
class Term:
    """The lessons that somebody handed in, and each student's scores in them.

    Attributes:
        scores: by student, in the lessons' order; None without a grade.
        behind: students who in each of the last two lessons have no grade, or far less than the median.
    """

    lessons: tuple[LessonInTerm, ...]
    scores: tuple[tuple[Student, tuple[float | None, ...]], ...]
    behind: tuple[Student, ...]


def over_the_term(tables: Mapping[str, Sequence[Standing]]) -> Term | None:
    """Compare lessons; None where there is only one.

    Args:
        tables: how everyone stands, by lesson, in order.
    """
    if len(tables) < 2:
        return None
    lessons = tuple(_in_term(name, table) for name, table in tables.items())
    students = {s.student.id: s.student for table in tables.values() for s in table}
    by_lesson = [{s.student.id: s.score for s in table} for table in tables.values()]
    scores = tuple(
        (student, tuple(found.get(name) for found in by_lesson))
        for name, student in sorted(students.items())
    )
    behind = tuple(student for student, points in scores if _is_behind(points, lessons))
    return Term(lessons, scores, behind)


def _in_term(name: str, table: Sequence[Standing]) -> LessonInTerm:
    points = [s.score for s in table if s.state == State.GRADED]
    missing = sum(s.state == State.MISSING for s in table)
    return LessonInTerm(name, len(points), missing, median(points) if points else None)


def _is_behind(points: Sequence[float | None], lessons: Sequence[LessonInTerm]) -> bool:
    last = list(zip(points, lessons, strict=True))[-2:]
    return all(
        score is None or (lesson.median is not None and score <= lesson.median - FAR_BELOW)
        for score, lesson in last
    )
