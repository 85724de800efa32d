"""Open an instructor's course as nbgrader is configured for it: folders, gradebook, roster, lessons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.apps.autogradeapp import AutogradeApp
from sqlalchemy import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from traitlets import TraitError
from traitlets.config import Config

from autograder.classroom.roster import Student, read_roster
from autograder.classroom.submissions import Submission, find_submissions
from autograder.desk import Desk
from autograder.nbgrader_steps import Judge, Settings, Submitted

ROSTER = "roster.csv"


class CannotStart(Exception):
    """A command cannot begin; the message says why and what to do."""


OUT_OF_REACH = (OperationalError, InterfaceError, DatabaseError)
"""The exceptions for an unreachable database. DatabaseError itself, and not a subclass of it, is raised
when a PostgreSQL server goes away in the middle of a query."""


class NoGradebook(CannotStart):
    """The gradebook cannot be used; the message says which and why."""

    def __init__(self, db_url: str, error: BaseException) -> None:
        why = str(getattr(error, "orig", error)).strip().partition("\n")[0]
        if isinstance(error, ImportError):
            why += "; for PostgreSQL: pip install psycopg2-binary"
        super().__init__(f"the gradebook {_without_password(db_url)} cannot be used: {why}")


def _without_password(db_url: str) -> str:
    try:
        return make_url(db_url).render_as_string(hide_password=True)
    except ArgumentError:
        return "of c.CourseDirectory.db_url"


class Course:
    """An instructor's course.

    Attributes:
        app: nbgrader's application, configured, with its log.
        directory: nbgrader's course directory.
        grading: the folder `grading`, which holds the roster.
    """

    def __init__(self, app: AutogradeApp) -> None:
        self.app = app
        self.directory = Submitted.of(app.coursedir)
        self.grading = self._root / Path(self.directory.autograded_directory).parent
        self.log = app.log

    @property
    def _root(self) -> Path:
        return Path(self.directory.root)

    def lessons(self) -> list[Lesson]:
        """Return the lessons that were released, in their order."""
        notebooks = sorted(self._released.glob("*/*.ipynb"))
        return [Lesson(self, path.parent.name, path) for path in notebooks]

    def lesson(self, name: str) -> Lesson:
        """Return a lesson that was released, by its folder's name or its number.

        Raises:
            CannotStart: there is no such lesson.
        """
        released = self.lessons()
        matching = [
            lesson for lesson in released if name in (lesson.name, lesson.name.partition("-")[0])
        ]
        if len(matching) != 1:
            names = ", ".join(lesson.name for lesson in released)
            has = names or "none: nbgrader generate_assignment comes first"
            raise CannotStart(
                f"no lesson {name!r} is released under {self._released}; there is {has}"
            )
        return matching[0]

    @property
    def _released(self) -> Path:
        return self._root / self.directory.release_directory

    def students(self) -> dict[str, Student]:
        """Return the class by id: the students of the roster, then others of the gradebook.

        Raises:
            BadRoster: see `read_roster`.
            NoGradebook: see `gradebook`.
        """
        path = self.grading / ROSTER
        students = {student.id: student for student in read_roster(path)} if path.exists() else {}
        with self.gradebook() as gradebook:
            for known in gradebook.students:
                names = ("first_name", "last_name", "email", "lms_user_id")
                values = {name: getattr(known, name) or "" for name in names}
                students.setdefault(known.id, Student(known.id, **values))
        return students

    @contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        """Open nbgrader's gradebook until the block ends.

        Raises:
            NoGradebook: it cannot be opened, or can no longer be reached.
        """
        url = self.directory.db_url
        try:
            opened = Gradebook(url, self.directory.course_id)
        except (SQLAlchemyError, ImportError) as error:
            raise NoGradebook(url, error) from error
        with self.reaching_gradebook(), opened:
            yield opened

    @contextmanager
    def reaching_gradebook(self) -> Iterator[None]:
        """Turn the errors of an unreachable gradebook into `NoGradebook` until the block ends.

        Raises:
            NoGradebook: it can no longer be reached.
        """
        try:
            yield
        except DBAPIError as error:
            if type(error) not in OUT_OF_REACH:
                raise
            raise NoGradebook(self.directory.db_url, error) from error


@dataclass(frozen=True)
class Lesson:
    """A released lesson of a course.

    Attributes:
        course: the course that it belongs to.
        name: the name of its folder, such as "03-kv-cache", which is that of nbgrader's assignment.
        released: the notebook as students get it.
    """

    course: Course
    name: str
    released: Path

    @property
    def module(self) -> str:
        """The notebook's name, such as "kv_cache"."""
        return self.released.stem

    def desk(self, judge_again: bool = False) -> Desk:
        """Return a new desk with the settings of `Judge`, which judges the submissions; close it at the
        end.

        Raises:
            CannotStart: the settings, the released notebook or the secret cannot be used.
        """
        config = self.course.app.config.Judge
        if unknown := sorted({*config} - {*Judge.class_trait_names(config=True)}):
            known = ", ".join(sorted(Settings.class_own_traits(config=True)))
            raise CannotStart(f"Judge has no setting {', '.join(unknown)}; it has {known}")
        try:
            settings = Settings(config=Config(Settings=config)).plain()
            return Desk(self.released, self.course.grading, settings, judge_again, self.course.log)
        except (OSError, ValueError, TraitError) as error:
            raise CannotStart(str(error)) from error

    def submissions(self) -> Iterator[Submission]:
        """Yield the submissions, ordered by the students' ids."""
        return find_submissions(self.course.directory, self.name, self.released.name)

    def graded(self, student: str) -> Path:
        """Return the path of a student's graded notebook, which need not exist."""
        directory = self.course.directory
        folder = directory.format_path(directory.autograded_directory, student, self.name)
        return Path(folder) / self.released.name

    def feedback(self, student: str) -> Path:
        """Return the path of a student's feedback page, which need not exist."""
        directory = self.course.directory
        folder = directory.format_path(directory.feedback_directory, student, self.name)
        return Path(folder) / f"{self.module}.html"


def open_course(options: Sequence[str] = ()) -> Course:
    """Open the course in the working directory.

    Args:
        options: nbgrader's options, such as --CourseDirectory.db_url=… or --Judge.cell_seconds=60.

    Raises:
        CannotStart: no course is configured here, or an option is not one of nbgrader's.
    """
    if not Path("nbgrader_config.py").exists():
        raise CannotStart(f"{Path.cwd()} holds no nbgrader_config.py: work in the course's folder")
    for option in options:
        if not option.startswith("-"):
            raise CannotStart(
                f"{option!r} is more than this command takes; --help lists its options"
            )
    AutogradeApp.clear_instance()
    app = AutogradeApp.instance(log_level="ERROR")
    app.initialize(list(options))
    return Course(app)
