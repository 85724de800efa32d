"""Determine the state of every student of the class in a lesson: exactly one, with its reason."""

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
    """The state of a student in a lesson; everyone is in exactly one."""

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
    """The standing of one student in one lesson.

    Attributes:
        student: from the roster, or with the id alone.
        state: the student's state.
        reason: why there is no grade and what to do, in one line; "" if there is a grade.
        result: the judge's result for the present file; None if it is unknown.
        points: the gradebook's points, those given by hand included, before any penalty; None without a
            grade.
        written: those of them that were given for written answers.
        unread: the written answers that wait to be graded by hand.
        penalty: the points that are taken off for being late.
        most: the points of the lesson.
        handed_in: the time of the submission, in UTC without a zone, as in nbgrader; None if unknown.
        seconds_late: the time after the due date and any extension.
        submission: the content of the student's folder; None if there is no folder.
    """

    student: Student
    state: State
    reason: str
    most: float
    result: Result | None = None
    points: float | None = None
    written: float = 0.0
    unread: int = 0
    penalty: float = 0.0
    handed_in: datetime | None = None
    seconds_late: float = 0.0
    submission: Submission | None = None

    @property
    def score(self) -> float | None:
        """The points after the penalty; None without a grade."""
        return None if self.points is None else max(0.0, self.points - self.penalty)

    @property
    def is_changed(self) -> bool:
        """Whether points that the judge gave were changed by hand."""
        return abs(self.points - self.written - self.result.points) > 1e-6


def standings(
    lesson: Lesson,
    desk: Desk,
    problems: Mapping[str, str] | None = None,
    just_graded: bool = False,
) -> list[Standing]:
    """Return the standing of everyone in the roster, the gradebook and the submitted folders, by id.

    Args:
        desk: the lesson's desk; its kept results are read, and nothing is judged.
        problems: why a submission could not be judged just now, by student.
        just_graded: whether only results with the desk's settings count, as for who has just graded.

    Raises:
        BadRoster: see `read_roster`.
    """
    submissions = {submission.student: submission for submission in lesson.submissions()}
    students = lesson.course.students()
    everyone = [students.get(name, Student(name)) for name in sorted({*students, *submissions})]
    with lesson.course.gradebook() as gradebook:
        sources = _Sources(lesson, desk, gradebook, problems or {}, just_graded)
        return [sources.standing(student, submissions.get(student.id)) for student in everyone]


@dataclass(frozen=True)
class _Sources:
    """The sources from which standings are read."""

    lesson: Lesson
    desk: Desk
    gradebook: Gradebook
    problems: Mapping[str, str]
    just_graded: bool

    def standing(self, student: Student, submission: Submission | None) -> Standing:
        most, asked = self.desk.assignment.most, self.desk.assignment.written
        plain = partial(Standing, student, most=most, submission=submission)
        if submission is None:
            return plain(State.MISSING, "nothing was handed in")
        if submission.problem:
            return plain(State.NOT_GRADED, f"{submission.problem}, and grade again")
        if submission.notebook is None:
            return plain(State.UNGRADABLE, _no_notebook(self.lesson, submission))
        shown = read_mark(self.lesson.graded(submission.student))
        key, kept = shown, None
        if not self.just_graded:  # what was graded with other settings has its points, too
            kept = self.desk.kept_under(shown, submission.notebook)
        if kept is None:
            key, kept = self.desk.key(submission.notebook), self.desk.kept(submission.notebook)
        if kept is None:
            why = self.problems.get(student.id, "not judged yet")
            return plain(State.NOT_GRADED, f"{why}: grade again")
        if kept.result.outcome != Outcome.SCORE:
            why = f"{kept.result.reason}: it has to be handed in again"
            return plain(State.UNGRADABLE, why, result=kept.result)
        book = self._in_gradebook(submission) if shown == key else None
        if book is None:
            why = "judged, but not in the gradebook yet: grade again"
            return plain(State.NOT_GRADED, why, result=kept.result)
        (notebook,) = book.notebooks
        written = [grade for grade in notebook.grades if grade.name in asked]
        return plain(
            State.UNTOUCHED if kept.result.untouched else State.GRADED,
            "",
            result=kept.result,
            points=float(notebook.score),
            written=float(sum(grade.score for grade in written)),
            unread=sum(grade.needs_manual_grade for grade in written),
            penalty=float(notebook.late_submission_penalty or 0),
            handed_in=book.timestamp,
            seconds_late=float(book.total_seconds_late),
        )

    def _in_gradebook(self, submission: Submission) -> SubmittedAssignment | None:
        """Return the gradebook's entry of a submission."""
        with suppress(MissingEntry):
            return self.gradebook.find_submission(self.lesson.name, submission.student)
        return None


def _no_notebook(lesson: Lesson, submission: Submission) -> str:
    """Describe the content of a folder without the notebook, and what to do."""
    expected = lesson.released.name
    if not submission.others:
        return f"the folder contains no notebook: {expected} has to be handed in"
    named = ", ".join(submission.others)
    return f"no {expected} was handed in, but {named}: rename the right file, and grade again"


def names_of(standings: Sequence[Standing], *states: State) -> list[str]:
    """List the ids of the students in one of these states."""
    return [standing.student.id for standing in standings if standing.state in states]
