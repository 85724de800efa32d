"""Judge submissions inside nbgrader: the steps that `nbgrader_config.py` names.

`nbgrader autograde` asks an exporter for each notebook that was handed in. Here that is `Judge`: it
reads the file itself, whatever is in it, has it judged, and returns the notebook that formgrader and
feedback show, with the points as results of its graded cells. nbgrader's own steps then read them.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import weakref
from contextlib import ExitStack
from datetime import datetime
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from traitlets import Bool, Float
from traitlets.config import Configurable

from autograder.one_writer import become_the_writer
from autograder.sandbox.submission_view import STAMP

if TYPE_CHECKING:  # nbgrader's other commands read this file too, and need none of it
    from autograder.desk import Desk
    from autograder.kept_results import Kept

LASTING = ("kernelspec", "language_info")
EXCHANGE_SECRET = "submission_secret.txt"
"""What nbgrader's exchange puts beside a submission, by which its feedback finds the way back."""
LONGEST_LINE = 100
"""The most characters that are read of such a file, and of timestamp.txt."""
MARK = "second_token_submission"
"""Of a graded notebook's metadata: the key of the result that it shows."""
UNSAVED = f"{MARK}_unsaved"
"""The same, until its points are in the gradebook."""


def drop_execution_metadata(notebook: Any, resources: dict) -> tuple[Any, dict]:
    """Remove all metadata of a notebook that depend on running it.

    nbgrader clears outputs, but it leaves the state of widgets, whose ids are drawn at random.
    """
    for key in set(notebook.metadata) - set(LASTING):
        del notebook.metadata[key]
    return notebook, resources


class NoGrade(Exception):
    """The machine or the judge failed, so there is no grade for this submission."""


class Settings(Configurable):
    """The settings that a result depends on, such as `c.Judge.cell_seconds`."""

    unsafe_no_sandbox = Bool(
        False,
        help="Run the students' code on this account, with no barrier around it. What it does then, "
        "it does as you. Every report says so.",
    ).tag(config=True)
    cell_seconds = Float(
        120,
        min=0,
        help="The seconds that one cell of a student may compute. Time in which other programs have the "
        "processor counts in none of these.",
    ).tag(config=True)
    question_seconds = Float(
        60, min=0, help="What a student's functions may compute for each challenge of a question."
    ).tag(config=True)
    follow_through = Bool(
        True,
        help="Ask what is lost for another cell's mistake again, with that cell put right, and credit "
        "what then passes. Otherwise one mistake can cost the points of all that stands on it.",
    ).tag(config=True)
    submission_seconds = Float(600, min=0, help="What a whole notebook may compute.").tag(
        config=True
    )

    def plain(self) -> dict[str, bool | float]:
        """Return all settings by name."""
        return {
            name: getattr(self, name) for name in sorted(Settings.class_own_traits(config=True))
        }


class Judge(Settings, NotebookExporter):
    """Judge what was handed in and export the feedback notebook: `Autograde.exporter_class`.

    It is made once per run, before anything is graded.

    Raises:
        NbGraderException: nothing can be graded here; the log says what to do.
    """

    judge_again = Bool(
        False,
        help="Judge every submission, also where the result of the same file by the same grader is kept.",
    ).tag(config=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parent.coursedir = course = Submitted.of(self.parent.coursedir)
        folder = Path(course.format_path(course.release_directory, ".", course.assignment_id))
        released = sorted(Path(course.root, folder).glob("*.ipynb"))
        if not released:
            self._refuse(f"{folder} holds no notebook: nbgrader generate_assignment comes first")
        self._complain_of_names({path.name for path in released})
        stack = ExitStack()
        self._closing = weakref.finalize(self, stack.close)
        self._close_with = stack.callback
        self._close_with(become_the_writer(self._grading / "writing.lock", self.log).close)
        if self.unsafe_no_sandbox:
            self.log.warning("No sandbox, as was asked for: the students' code runs as you.")
        self.desks = {path.stem: self._open_desk(path) for path in released}
        self._prepare()

    def close(self) -> None:
        """Release the gradebook for other processes, which otherwise happens when this process ends."""
        self._closing()

    def _open_desk(self, released: Path) -> Desk:
        from autograder.desk import Desk

        try:
            desk = Desk(released, self._grading, self.plain(), self.judge_again, self.log)
        except (OSError, ValueError) as error:
            self._refuse(str(error))
        self._close_with(desk.close)
        return desk

    @property
    def _grading(self) -> Path:
        """The folder `grading`."""
        course = self.parent.coursedir
        return Path(course.root, course.autograded_directory).parent

    def _prepare(self) -> None:
        """Remove the graded notebooks of files that have changed, since nbgrader compares only times, and
        start the sandbox if there is something to judge."""
        for files in self.parent.assignments.values():
            for file in map(Path, files):
                if desk := self.desks.get(file.stem):
                    graded = self._graded(file)
                    if graded.exists() and read_mark(graded) != desk.key(file):
                        self.log.warning(
                            "%s: handed in again, or the grader has changed.", file.parent
                        )
                        shutil.rmtree(graded.parent)
                    if (self.parent.force or not graded.exists()) and not desk.find(file):
                        self._start_sandbox(desk)

    def _graded(self, submitted: Path) -> Path:
        """Return the path of the graded notebook for a submitted one."""
        names = self.parent.init_single_notebook_resources(str(submitted))["nbgrader"]
        course = self.parent.coursedir
        where = (course.autograded_directory, names["student"], names["assignment"])
        return Path(course.format_path(*where), submitted.name)

    def _start_sandbox(self, desk: Desk) -> None:
        from autograder.sandbox.command import SandboxMissing

        try:
            desk.open()
        except (SandboxMissing, OSError, ValueError) as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> None:
        self.log.error("Nothing was graded. %s", why)
        raise NbGraderException(why)

    def _complain_of_names(self, expected: set[str]) -> None:
        """Log empty folders and files with other names, which nbgrader silently skips."""
        course = self.parent.coursedir
        whose = (course.submitted_directory, course.student_id, course.assignment_id)
        excluded = {
            course.format_path(course.submitted_directory, student, course.assignment_id)
            for student in course.student_id_exclude.split(",")
        }
        for folder in sorted({*glob(course.format_path(*whose))} - excluded):
            if not any(Path(folder).glob("*.ipynb")):
                self.log.error("%s: no notebook was handed in.", folder)
        for folder, notebooks in self.parent.assignments.items():
            present = {Path(name).name for name in notebooks}
            if not present & expected and folder not in excluded:
                self.log.error(
                    "%s: no %s was handed in, but %s. Rename the right file, and grade again.",
                    folder,
                    " or ".join(sorted(expected)),
                    ", ".join(sorted(present)),
                )

    def from_filename(
        self, filename: str, resources: dict | None = None, **options: Any
    ) -> tuple[str, dict]:
        """Export a file: judged if it is a submission, otherwise unchanged."""
        names = resources["nbgrader"]
        course = self.parent.coursedir
        handed_in = course.format_path(
            course.submitted_directory, names["student"], names["assignment"]
        )
        if Path(filename).parent != Path(handed_in):
            return _mark_as_saved(*super().from_filename(filename, resources, **options))
        notebook = self._judge(Path(filename), names)
        kept = {
            name: Submitted.read_line(Path(handed_in), name) for name in (STAMP, EXCHANGE_SECRET)
        }
        resources["outputs"] = {name: line.encode() for name, line in kept.items() if line}
        resources["metadata"] = {"name": names["notebook"], "path": handed_in}
        return self.from_notebook_node(notebook, resources, **options)

    def _judge(self, path: Path, names: dict[str, str]) -> nbformat.NotebookNode:
        from autograder.result import Outcome

        desk = self.desks[names["notebook"]]
        desk.digest(path, anew=True)  # it may have been replaced since this command began
        kept = desk.find(path)
        if not kept:
            self._start_sandbox(desk)
            kept = desk.judge(path)
        result = kept.result
        # Of what was refused, such as another lesson's notebook, only the reason is shown.
        digest, cells = _cells_of(path) if result.submission else ("", [])
        # Partly the student's words: nothing in them may steer a terminal.
        why = "".join(filter(str.isprintable, " ".join(result.reason.split())))
        if result.outcome == Outcome.INFRA_ERROR:
            line = f"{names['student']}: {result.outcome}, no grade; grade again. {why}"
            self.log.error(line)
            _forget_if_new(names)
            raise NoGrade(line)
        if result.submission != digest:
            raise NoGrade(f"{names['student']}: handed in again just now, no grade; grade again.")
        log = self.log.info if result.outcome == Outcome.SCORE else self.log.warning
        log(f"{names['student']}: {result.outcome}, {result.points:g} points. {why}".strip())
        return _lay_out_feedback(desk, path, cells, kept)


def _cells_of(path: Path) -> tuple[str, list[Any]]:
    """Return the SHA-256 and the cells of a file, "" and none of one that is not a notebook."""
    from autograder.assignment import BadSubmission, read_cells

    try:
        return read_cells(path.absolute())
    except BadSubmission:
        return "", []


def _lay_out_feedback(
    desk: Desk, path: Path, cells: list[Any], kept: Kept
) -> nbformat.NotebookNode:
    """Lay out the notebook that formgrader and feedback show, with a mark of its file."""
    from autograder.report.feedback import feedback_notebook

    released = nbformat.read(desk.released, as_version=4)
    notebook = feedback_notebook(cells, released, kept.result, kept.level)
    notebook.metadata[UNSAVED] = desk.key(path)
    return notebook


def _mark_as_saved(text: str, resources: dict) -> tuple[str, dict]:
    """Give a graded notebook its mark. nbgrader writes it twice, before and after the points, so the
    mark is only present if the points are, whatever ends the grader in between."""
    notebook = nbformat.reads(text, as_version=4)
    if UNSAVED in notebook.metadata:
        notebook.metadata[MARK] = notebook.metadata.pop(UNSAVED)
    return nbformat.writes(notebook), resources


def read_mark(graded: Path) -> str:
    """Return the key of the result that a graded notebook shows; "" if it is unknown."""
    try:
        return str(json.loads(graded.read_bytes())["metadata"].get(MARK, ""))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""


class Submitted(CourseDirectory):
    """The course's folders, from which only the notebook of a submission is read.

    nbgrader would copy every file beside it, follow links and wait for pipes, which nobody needs.
    """

    @classmethod
    def of(cls, course: CourseDirectory) -> Submitted:
        """Copy the settings of another course directory."""
        settings = {name: getattr(course, name) for name in course.trait_names(config=True)}
        return cls(parent=course.parent, **{**settings, "ignore": ["*"]})

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        """Return the time of the submission in UTC; None if it is unknown."""
        stamp = self.read_line(Path(dest_path), STAMP)
        try:
            return parse_utc(stamp) if stamp else None
        except (ValueError, OverflowError):
            self.log.warning("%s/%s holds no time: %r", dest_path, STAMP, stamp)
            return None

    @staticmethod
    def read_line(folder: Path, name: str) -> str:
        """Read the beginning of a file; "" if there is not a regular file of that name."""
        try:
            fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return file.read(LONGEST_LINE).decode("utf-8", "replace").strip()


def _forget_if_new(names: dict[str, str]) -> None:
    """Remove a new submission from the gradebook, in which it would count as 0 points."""
    student, assignment = names["student"], names["assignment"]
    with Gradebook(names["db_url"]) as gradebook:
        try:
            submission = gradebook.find_submission(assignment, student)
        except MissingEntry:
            return
        grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
        if all(grade.auto_score is None and grade.manual_score is None for grade in grades):
            gradebook.remove_submission(assignment, student)
