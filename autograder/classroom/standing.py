"""Say how every student of the class stands in a lesson: in exactly one state, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from nbgrader.api import Gradebook, MissingEntry, SubmittedAssignment

from autograder.classroom.course import Lesson
from autograder.classroom.roster import Student
from autograder.classroom.submissions import Submission
from autograder.desk import Desk
from autograder.nbgrader_steps import read_mark
from autograder.result import Outcome, Result


class State(StrEnum):
    """How a student stands in a lesson. Everyone is in exactly one of them."""

    GRADED = "graded"
    """It was judged, and the points are in the gradebook."""
    UNTOUCHED = "untouched"
    """It was judged; nothing was written into the notebook."""
    UNGRADABLE = "ungradable"
    """Something was handed in that cannot be judged; the student has to hand in again."""
    NOT_GRADED = "not graded"
    """It was handed in and is not graded yet: the instructor has to grade again."""
    MISSING = "missing"
    """Nothing was handed in."""


HAS_GRADE = (State.GRADED, State.UNTOUCHED)


@dataclass(frozen=True)
class Standing:
    """How one student stands in one lesson.

    Attributes:
        student: of the roster, or with the id alone.
        state: the one that holds.
        reason: why there is no grade and what to do, one line; "" where there is one.
        result: what the judge found in the file that lies there now; None where that is not known.
        points: in the gradebook, changes by hand included, before any penalty; None without a grade.
        penalty: that is taken off for being late.
        most: points that the lesson has.
        handed_in: when, in UTC without a zone, as nbgrader keeps it; None where that is not known.
        seconds_late: after the due date and what the student was granted.
        submission: what lies in the student's folder; None where there is no folder.
    """

    student: Student
    state: State
    reason: str
    most: float
    result: Result | None = None
    points: float | None = None
    penalty: float = 0.0
    handed_in: datetime | None = None
    seconds_late: float = 0.0
    submission: Submission | None = None

    @property
    def score(self) -> float | None:
        """The points after the penalty; None without a grade."""
        return None if self.points is None else max(0.0, self.points - self.penalty)


def standings(
    lesson: Lesson, desk: Desk, problems: Mapping[str, str] | None = None
) -> list[Standing]:
    """Return how everyone stands: of the roster, the gradebook and the submitted folders, by id.

    Args:
        desk: of the lesson; its kept results are read, nothing is judged.
        problems: by student, why a submission could not be judged just now.

    Raises:
        BadRoster: see `read_roster`.
    """
    submissions = {submission.student: submission for submission in lesson.submissions()}
    students = lesson.course.students()
    everyone = [students.get(name, Student(name)) for name in sorted({*students, *submissions})]
    with lesson.course.gradebook() as gradebook:
        at = _At(lesson, desk, gradebook, problems or {})
        return [at.standing(student, submissions.get(student.id)) for student in everyone]


@dataclass(frozen=True)
class _At:
    """Where standings are read."""

    lesson: Lesson
    desk: Desk
    gradebook: Gradebook
    problems: Mapping[str, str]

    def standing(self, student: Student, submission: Submission | None) -> Standing:
        most = sum(question.points for question in self.desk.assignment.questions)
        plain = partial(Standing, student, most=most, submission=submission)
        if submission is None:
            return plain(State.MISSING, "nothing was handed in")
        if submission.problem:
            return plain(State.NOT_GRADED, f"{submission.problem}, and grade again")
        if submission.notebook is None:
            return plain(State.UNGRADABLE, _no_notebook(self.lesson, submission))
        kept = self.desk.kept(submission.notebook)
        if kept is None:
            why = self.problems.get(student.id, "not judged yet")
            return plain(State.NOT_GRADED, f"{why}: grade again")
        if kept.result.outcome != Outcome.SCORE:
            why = f"{kept.result.reason}: it has to be handed in again"
            return plain(State.UNGRADABLE, why, result=kept.result)
        book = self._in_gradebook(submission)
        if book is None:
            why = "judged, but not in the gradebook yet: grade again"
            return plain(State.NOT_GRADED, why, result=kept.result)
        (notebook,) = book.notebooks
        return plain(
            State.UNTOUCHED if kept.result.untouched else State.GRADED,
            "",
            result=kept.result,
            points=float(notebook.score),
            penalty=float(notebook.late_submission_penalty or 0),
            handed_in=book.timestamp,
            seconds_late=float(book.total_seconds_late),
        )

    def _in_gradebook(self, submission: Submission) -> SubmittedAssignment | None:
        """Find a submission in the gradebook, if its points are of the file that lies there now."""
        if read_mark(self.lesson.graded(submission.student)) != self.desk.key(submission.notebook):
            return None
        with suppress(MissingEntry):
            return self.gradebook.find_submission(self.lesson.name, submission.student)
        return None


def _no_notebook(lesson: Lesson, submission: Submission) -> str:
    """Say what lies in a folder without the notebook, and what to do."""
    expected = lesson.released.name
    if not submission.others:
        return f"the folder holds no notebook: {expected} has to be handed in"
    named = ", ".join(submission.others)
    return f"no {expected} was handed in, but {named}: rename what is meant, and grade again"


def names_of(standings: Sequence[Standing], *states: State) -> list[str]:
    """List the ids of those in one of these states."""
    return [standing.student.id for standing in standings if standing.state in states]
