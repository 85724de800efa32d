"""Write results into nbgrader's gradebook, by nbgrader's own steps and without running any code."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from nbgrader import api
from nbgrader.api import MissingEntry
from nbgrader.converters import Autograde
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.utils import rmtree
from sqlalchemy.exc import SAWarning
from tqdm import tqdm

from autograder.classroom.course import OUT_OF_REACH, CannotStart, Lesson, NoGradebook
from autograder.classroom.roster import Student
from autograder.classroom.submissions import Submission
from autograder.desk import Desk
from autograder.nbgrader_steps import read_mark
from autograder.one_writer import become_the_writer

NO_ROOM = (os.strerror(errno.ENOSPC), "disk is full")
NAMES = ("first_name", "last_name", "email", "lms_user_id")


def require_gradebook(lesson: Lesson) -> None:
    """Check that the lesson's points can be written, before hours of work.

    Raises:
        CannotStart: the gradebook cannot be used, or does not know the lesson.
    """
    try:
        with lesson.course.gradebook() as gradebook:
            gradebook.find_assignment(lesson.name)
    except MissingEntry:
        raise CannotStart(
            f"the gradebook does not know {lesson.name}: "
            f"nbgrader generate_assignment {lesson.name} --force tells it, and changes no grades"
        ) from None


def write_gradebook(
    lesson: Lesson, desk: Desk, force: bool = False, students: Collection[str] = ()
) -> None:
    """Write the roster, and the points and graded notebook of each submission whose result is new.

    A submission that cannot be written is skipped; its standing says so, and nbgrader's log says why.

    Args:
        desk: the lesson's desk; only its kept results are read.
        force: whether to write submissions whose graded notebook shows the result already.
        students: whose submissions alone are written; of nobody, everybody's.

    Raises:
        NoGradebook: the gradebook can no longer be reached.
    """
    course = lesson.course
    with closing(become_the_writer(course.grading / "writing.lock", course.log)):
        _write_students(lesson)
        _take_back_unknown(lesson)
    autograde = _Writing(coursedir=course.directory, parent=course.app)
    force = force or autograde.force
    submissions = list(lesson.submissions())
    chosen = [s for s in submissions if not students or s.student in students]
    new = [s for s in chosen if _is_new(lesson, desk, s, force)]
    # Of what is left out here, nbgrader's log need not tell.
    names = {s.student for s in submissions} - {s.student for s in new}
    course.directory.student_id_exclude = ",".join(sorted(names))
    course.directory.assignment_id = lesson.name
    if new:
        autograde.write_only(lesson, desk, new, force)
        try:
            run_converter(autograde, lesson, len(new), "gradebook")
        finally:
            if autograde.exporter:
                autograde.exporter.close()


def run_converter(converter: BaseConverter, lesson: Lesson, total: int, name: str) -> None:
    """Run nbgrader's steps with a progress bar of this name.

    Raises:
        NoGradebook: the gradebook can no longer be reached.
    """
    course = lesson.course
    full: list[str] = []
    with (
        tqdm(desc=name, total=total, unit="submission", file=sys.stderr) as progress,
        warnings.catch_warnings(),
        _one_engine(),
        _without_hints(course.log, full),
        course.reaching_gradebook(),
    ):
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own way with its database
        converter.post_convert_hook = lambda **_: progress.update()
        try:
            converter.start()
        except NbGraderException as error:  # it has logged each by name
            if type(error.__context__) in OUT_OF_REACH:
                raise NoGradebook(course.directory.db_url, error.__context__) from error
            logging.getLogger(__name__).debug("nbgrader: %s", error)
    if full:
        raise NoGradebook(course.directory.db_url, OSError("the disk is full; make room first"))


@contextmanager
def _one_engine() -> Iterator[None]:
    """Have nbgrader use one engine for the gradebook. It makes an engine for each access, and SQLAlchemy
    compiles every query anew for each, which takes longer than the queries."""
    create_engine = api.create_engine
    api.create_engine = cache(create_engine)
    try:
        yield
    finally:
        api.create_engine = create_engine


@contextmanager
def _without_hints(log: logging.Logger, full: list[str]) -> Iterator[None]:
    """Suppress nbgrader's log of a full disk and of an unreachable database, which it takes for that of
    an older nbgrader: `NoGradebook` reports both.

    Args:
        full: gets what was logged of a full disk.
    """
    hints = ["nbgrader db upgrade", *(f"sqlalchemy.exc.{kind.__name__}:" for kind in OUT_OF_REACH)]

    def is_other(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if any(words in message for words in NO_ROOM):
            full.append(message)
        return not full and not any(hint in message for hint in hints)

    log.addFilter(is_other)
    try:
        yield
    finally:
        log.removeFilter(is_other)


class _Writing(Autograde):
    """nbgrader's own steps over chosen submissions. It would search for them by patterns, which fail for
    an id such as [a] or one with a comma."""

    def write_only(
        self, lesson: Lesson, desk: Desk, submissions: Sequence[Submission], force: bool
    ) -> None:
        self._at, self._force = (lesson, desk), force
        self._submissions = {s.student: s for s in submissions}

    def init_notebooks(self) -> None:
        self.assignments = {str(f.folder): [str(f.notebook)] for f in self._submissions.values()}

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        """Tell whether to write one: another grader may have done so while this one waited."""
        if not _is_new(*self._at, self._submissions[student_id], self._force):
            return False
        graded = Path(self._format_dest(assignment_id, student_id))
        if graded.exists():
            rmtree(str(graded))
        return True


def _is_new(lesson: Lesson, desk: Desk, submission: Submission, force: bool) -> bool:
    """Tell whether a submission has a result that the graded notebook does not show."""
    if not submission.notebook or not desk.kept(submission.notebook):
        return False
    return force or read_mark(lesson.graded(submission.student)) != desk.key(submission.notebook)


def _write_students(lesson: Lesson) -> None:
    """Write the students of the roster who are new to the gradebook, or whose entry differs."""
    with lesson.course.gradebook() as gradebook:
        known = {s.id: [getattr(s, n) or "" for n in NAMES] for s in gradebook.students}
        for student in lesson.course.students().values():
            if known.get(student.id) != _values(student):
                values = dict(zip(NAMES, _values(student), strict=True))
                gradebook.update_or_create_student(student.id, **values)


def _take_back_unknown(lesson: Lesson) -> None:
    """Remove graded notebooks whose submission this gradebook does not know: it is a new gradebook."""
    with lesson.course.gradebook() as gradebook:
        known = {
            submission.student_id for submission in gradebook.assignment_submissions(lesson.name)
        }
    for submission in lesson.submissions():
        graded = lesson.graded(submission.student)
        if submission.student not in known and graded.exists():
            rmtree(str(graded.parent))


def _values(student: Student) -> list[str]:
    return [getattr(student, name) for name in NAMES]
