"""Judge submissions inside nbgrader: the steps that `nbgrader_config.py` names.

`nbgrader autograde` asks an exporter for each notebook that was handed in. Here that is `Judge`: it
reads the file itself, whatever is in it, has it judged, and returns the notebook that formgrader and
feedback show, with the points as results of its graded cells. nbgrader's own steps then read them.
"""

from __future__ import annotations

import os
import stat
import weakref
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from traitlets import Bool, Float

LASTING = ("kernelspec", "language_info")
STAMP, LONGEST_STAMP = "timestamp.txt", 100


def drop_execution_metadata(notebook: Any, resources: dict) -> tuple[Any, dict]:
    """Keep of a notebook's metadata only what does not depend on running it.

    nbgrader clears outputs, but it leaves the state of widgets, whose ids are drawn at random.
    """
    for key in set(notebook.metadata) - set(LASTING):
        del notebook.metadata[key]
    return notebook, resources


class NoGrade(Exception):
    """The machine or the judge failed, so there is no grade for this submission."""


class Judge(NotebookExporter):
    """Judge what was handed in and export the feedback notebook: `Autograde.exporter_class`.

    Made once a run, before anything is graded.

    Raises:
        NbGraderException: nothing can be graded here; the log says what to do.
    """

    unsafe_no_sandbox = Bool(
        False,
        help="Run the students' code on this account, with no barrier around it. What it does then, "
        "it does as you. Every report says so.",
    ).tag(config=True)
    cell_seconds = Float(120, min=0, help="What one cell of a student may take.").tag(config=True)
    question_seconds = Float(
        60, min=0, help="What a student's functions may take for one graded question."
    ).tag(config=True)
    follow_through = Bool(
        True,
        help="Ask what is lost for another cell's mistake again, with that cell put right, and credit "
        "what then passes. Otherwise one mistake can cost the points of all that stands on it.",
    ).tag(config=True)
    submission_seconds = Float(600, min=0, help="What a whole notebook may take.").tag(config=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parent.coursedir = course = Submitted.of(self.parent.coursedir)
        folder = Path(course.format_path(course.release_directory, ".", course.assignment_id))
        released = sorted(Path(course.root, folder).glob("*.ipynb"))
        if not released:
            self._refuse(f"{folder} holds no notebook: nbgrader generate_assignment comes first")
        self._complain_of_names({path.name for path in released})
        if self.unsafe_no_sandbox:
            self.log.warning("No sandbox, as was asked for: the students' code runs as you.")
        self.desks = {path.stem: self._open_desk(path) for path in released}

    def _open_desk(self, released: Path) -> Desk:
        from autograder.sandbox.command import SandboxMissing

        try:
            desk = Desk(
                released,
                _secret_of(self.parent.coursedir),
                self.unsafe_no_sandbox,
                (self.cell_seconds, self.question_seconds, self.submission_seconds),
                self.follow_through,
            )
        except SandboxMissing as error:
            self._refuse(
                f"{error}\nHere that is: nbgrader autograde --Judge.unsafe_no_sandbox=True"
            )
        except (OSError, ValueError) as error:
            self._refuse(str(error))
        weakref.finalize(self, desk.launcher.close)
        return desk

    def _refuse(self, why: str) -> None:
        self.log.error("Nothing was graded. %s", why)
        raise NbGraderException(why)

    def _complain_of_names(self, wanted: set[str]) -> None:
        """Log empty folders and files with other names, which nbgrader passes over in silence."""
        course = self.parent.coursedir
        whose = (course.submitted_directory, course.student_id, course.assignment_id)
        for folder in sorted(glob(course.format_path(*whose))):
            if not any(Path(folder).glob("*.ipynb")):
                self.log.error("%s: no notebook was handed in.", folder)
        for folder, notebooks in self.parent.assignments.items():
            there = {Path(name).name for name in notebooks}
            if not there & wanted:
                self.log.error(
                    "%s: no %s was handed in, but %s. Rename what is meant, and grade again.",
                    folder,
                    " or ".join(sorted(wanted)),
                    ", ".join(sorted(there)),
                )

    def from_filename(
        self, filename: str, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        """Export a file: judged if a student handed it in, else as it is."""
        names = resources["nbgrader"]
        course = self.parent.coursedir
        handed_in = course.format_path(
            course.submitted_directory, names["student"], names["assignment"]
        )
        if Path(filename).parent != Path(handed_in):
            return super().from_filename(filename, resources, **options)
        notebook = self._judge(Path(filename), names)
        if stamp := Submitted.read_stamp(Path(handed_in)):
            resources["outputs"] = {STAMP: stamp.encode()}
        resources["metadata"] = {"name": names["notebook"], "path": handed_in}
        return self.from_notebook_node(notebook, resources, **options)

    def _judge(self, path: Path, names: dict[str, str]) -> nbformat.NotebookNode:
        from autograder.judge import Outcome

        result, notebook = self.desks[names["notebook"]].judge(path)
        # Partly the student's words: nothing in them may steer a terminal.
        why = "".join(filter(str.isprintable, " ".join(result.reason.split())))
        if result.outcome == Outcome.INFRA_ERROR:
            line = f"{names['student']}: {result.outcome}, no grade; grade again. {why}"
            self.log.error(line)
            _forget_if_new(names)
            raise NoGrade(line)
        log = self.log.info if result.outcome == Outcome.SCORE else self.log.warning
        log(f"{names['student']}: {result.outcome}, {result.points:g} points. {why}".strip())
        return notebook


class Desk:
    """Judges the submissions to one lesson.

    Args:
        released: the lesson's notebook as students get it.
        secret: the file with the grader's secret.
        unsafe_no_sandbox: see `Judge`.
        seconds: of wall-clock time for one cell, one question, and a whole notebook.
        follow_through: see `Judge`.

    Raises:
        SandboxMissing, ValueError: see `Launcher`.
    """

    def __init__(
        self,
        released: Path,
        secret: Path,
        unsafe_no_sandbox: bool,
        seconds: tuple[float, float, float],
        follow_through: bool,
    ) -> None:
        # Only here: nbgrader's other commands need none of it.
        from autograder.assignment import read_assignment
        from autograder.sandbox.launch import Launcher
        from autograder.secret import read_secret
        from autograder.session import Deadlines

        self.released = nbformat.read(released, as_version=4)
        self.assignment = read_assignment(released)
        self.secret = read_secret(secret)
        self.deadlines, self.follow_through = Deadlines(*seconds), follow_through
        self.launcher = Launcher(self.assignment.module, unsafe_no_sandbox)

    def judge(self, path: Path) -> tuple[Any, nbformat.NotebookNode]:
        """Judge a file; return the result and the feedback notebook."""
        from autograder.assignment import BadSubmission, read_cells
        from autograder.judge import grade_one
        from autograder.report.feedback import feedback_notebook

        path = path.absolute()
        with self.launcher.start_for(path.parent) as start:
            result = grade_one(
                path, self.assignment, start, self.secret, self.deadlines, self.follow_through
            )
        try:
            _, cells = read_cells(path)
        except BadSubmission:
            cells = []
        return result, feedback_notebook(cells, self.released, result, self.launcher.level)


class Submitted(CourseDirectory):
    """The course's folders, where nothing beside a submitted notebook is followed or copied.

    nbgrader would copy it all, follow links and wait for pipes; nothing of it is needed.
    """

    @classmethod
    def of(cls, course: CourseDirectory) -> Submitted:
        """Copy the settings of another course directory."""
        settings = {name: getattr(course, name) for name in course.trait_names(config=True)}
        return cls(parent=course.parent, **{**settings, "ignore": ["*"]})

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        """Return when it was handed in, in UTC; None when that cannot be told."""
        stamp = self.read_stamp(Path(dest_path))
        try:
            return parse_utc(stamp) if stamp else None
        except (ValueError, OverflowError):
            self.log.warning("%s/%s holds no time: %r", dest_path, STAMP, stamp)
            return None

    @staticmethod
    def read_stamp(folder: Path) -> str:
        """Read the file with the time; "" when there is no regular one."""
        try:
            fd = os.open(folder / STAMP, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return file.read(LONGEST_STAMP).decode("utf-8", "replace").strip()


def _secret_of(course: CourseDirectory) -> Path:
    """Return the path of the grader's secret, beside the folders of graded work."""
    return Path(course.root, course.autograded_directory).parent / "secret"


def _forget_if_new(names: dict[str, str]) -> None:
    """Remove a new submission from the gradebook, where it would count as 0 points."""
    student, assignment = names["student"], names["assignment"]
    with Gradebook(names["db_url"]) as gradebook:
        try:
            submission = gradebook.find_submission(assignment, student)
        except MissingEntry:
            return
        grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
        if all(grade.auto_score is None and grade.manual_score is None for grade in grades):
            gradebook.remove_submission(assignment, student)
