"""Take off points for being late, and count what the roster grants: steps of `nbgrader autograde`.

A lesson's due date is the one in nbgrader's gradebook. The time of a submission is that of its
timestamp.txt; an extension is written into the gradebook's own column for it, so that everything that
reads the gradebook counts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, SubmittedAssignment
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import AssignLatePenalties, NbGraderPreprocessor
from nbgrader.utils import parse_utc
from traitlets import Float

from autograder.classroom.course import ROSTER, Lesson
from autograder.classroom.roster import Student, read_roster
from autograder.nbgrader_steps import Submitted
from autograder.one_writer import become_the_writer

DAY = 24 * 60 * 60


class LatePenalty(LateSubmissionPlugin):
    """Take off a part of the lesson's points for each day that has begun: nbgrader's
    `AssignLatePenalties.plugin_class`."""

    percent_a_day = Float(
        0,
        min=0,
        max=100,
        help="Percent of the lesson's points that each day begun costs. 0: what nbgrader's own "
        "LateSubmissionPlugin.penalty_method says, which is nothing unless it is set.",
    ).tag(config=True)
    grace_minutes = Float(
        0, min=0, help="Minutes by which the due date is put off without saying so."
    ).tag(config=True)
    late_days = Float(
        0,
        min=0,
        help="Days late that cost nothing, for each student and the whole term; lessons use them up in "
        "the order of their names.",
    ).tag(config=True)
    largest_percent = Float(
        100, min=0, max=100, help="Percent of the lesson's points that being late can cost at most."
    ).tag(config=True)

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float | None:
        """Return the points to take off, at most those that were reached.

        Args:
            student_id: of whom.
            score: that the student reached.
            total_seconds_late: after the due date and what was granted.
        """
        if not self.percent_a_day:
            return super().late_submission_penalty(student_id, score, total_seconds_late)
        step = self.parent  # nbgrader's step, which alone knows the lesson
        days = self._days(total_seconds_late)
        if self.late_days and days:
            before = sum(
                self._days(submission.total_seconds_late)
                for submission in step.gradebook.student_submissions(student_id)
                if submission.assignment.name < step.assignment_id
            )
            days -= min(days, max(0, self.late_days - before))
        percent = min(days * self.percent_a_day, self.largest_percent)
        notebook = step.gradebook.find_notebook(step.notebook_id, step.assignment_id)
        return min(score, notebook.max_score * percent / 100) or None

    def _days(self, seconds_late: float) -> int:
        """Count the days that have begun."""
        return math.ceil(max(0, seconds_late - 60 * self.grace_minutes) / DAY)


class GrantExtensions(NbGraderPreprocessor):
    """Write when a submission was handed in and what the roster grants: a step of
    `Autograde.autograde_preprocessors`, before `AssignLatePenalties`."""

    def preprocess(
        self, notebook: nbformat.NotebookNode, resources: dict[str, Any]
    ) -> tuple[nbformat.NotebookNode, dict[str, Any]]:
        """Bring one submission up to date in the gradebook; the notebook stays as it is.

        Raises:
            BadRoster: see `read_roster`.
        """
        names = resources["nbgrader"]
        directory = self.parent.parent.coursedir
        grading = Path(directory.root, directory.autograded_directory).parent
        with Gradebook(names["db_url"]) as gradebook:
            submission = gradebook.find_submission(names["assignment"], names["student"])
            _bring_up_to_date(submission, directory, _students(grading / ROSTER))
            gradebook.db.commit()
        return notebook, resources


def write_penalties(lesson: Lesson) -> list[str]:
    """Write the penalties of a lesson anew, by the due date, the roster and the settings of now.

    Returns:
        The ids of the students whose penalty is another than before.

    Raises:
        BadRoster: see `read_roster`.
    """
    course = lesson.course
    students = _students(course.grading / ROSTER)
    with closing(become_the_writer(course.grading / "writing.lock", course.log)):
        with course.gradebook() as gradebook:
            before, late = {}, []
            for submission in gradebook.assignment_submissions(lesson.name):
                _bring_up_to_date(submission, course.directory, students)
                student = submission.student.id
                before[student] = submission.late_submission_penalty
                if before[student] or submission.total_seconds_late > 0:
                    late.append(student)
            gradebook.db.commit()
        for student in late:
            _assign_penalty(lesson, student)
        with course.gradebook() as gradebook:
            now = {
                student: gradebook.find_submission(lesson.name, student).late_submission_penalty
                for student in late
            }
    return sorted(student for student, penalty in now.items() if penalty != before[student])


def _assign_penalty(lesson: Lesson, student: str) -> None:
    """Run nbgrader's step, with whatever plugin is configured."""
    names = {
        "notebook": lesson.module,
        "assignment": lesson.name,
        "student": student,
        "db_url": lesson.course.directory.db_url,
    }
    step = AssignLatePenalties(parent=lesson.course.app)
    with lesson.course.reaching_gradebook():
        step.preprocess(nbformat.v4.new_notebook(), {"nbgrader": names})


def _bring_up_to_date(
    submission: SubmittedAssignment, directory: Submitted, students: Mapping[str, Student]
) -> None:
    """Set the time and the extension of a submission in the gradebook."""
    lesson, student = submission.assignment, submission.student.id
    folder = directory.format_path(directory.submitted_directory, student, lesson.name)
    submission.timestamp = directory.get_existing_timestamp(folder)
    if student in students:
        granted = students[student].extension(lesson.name)
        submission.extension = _extension(granted, lesson.duedate)


def _extension(granted: float | datetime | None, due: datetime | None) -> timedelta | None:
    """Count what is granted from the due date; without one, nbgrader takes no extension."""
    if granted is None or due is None:
        return None
    if isinstance(granted, datetime):
        return max(timedelta(0), parse_utc(granted) - due)
    return timedelta(days=granted)


def _students(roster: Path) -> Mapping[str, Student]:
    """Read the roster once for all submissions of a run."""
    if not roster.exists():
        return {}
    status = roster.stat()
    return _read_students(roster, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _read_students(roster: Path, _changed: int, _size: int) -> Mapping[str, Student]:
    return {student.id: student for student in read_roster(roster)}
