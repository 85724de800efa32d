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
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import cache, cached_property
from glob import glob
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from traitlets import Bool, Float

if TYPE_CHECKING:
    from autograder.kept_results import Kept
    from autograder.sandbox.launch import Launcher

LASTING = ("kernelspec", "language_info")
STAMP, LONGEST_STAMP = "timestamp.txt", 100
SETTINGS = (
    "unsafe_no_sandbox",
    "cell_seconds",
    "question_seconds",
    "submission_seconds",
    "follow_through",
)
"""What of a `Judge` a result depends on."""
MARK = "second_token_submission"
"""Of a graded notebook's metadata: the digest of the files that it was made of."""


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
        if self.unsafe_no_sandbox:
            self.log.warning("No sandbox, as was asked for: the students' code runs as you.")
        self.desks = {path.stem: self._open_desk(path) for path in released}
        self._prepare()

    def _open_desk(self, released: Path) -> Desk:
        course = self.parent.coursedir
        grading = Path(course.root, course.autograded_directory).parent
        settings = {name: getattr(self, name) for name in SETTINGS}
        try:
            desk = Desk(released, grading, settings, self.judge_again, self.log)
        except (OSError, ValueError) as error:
            self._refuse(str(error))
        weakref.finalize(self, desk.close)
        return desk

    def _prepare(self) -> None:
        """Take back graded notebooks of files that are others now, for nbgrader looks at their times
        alone; and start the sandbox if there is something to judge."""
        for files in self.parent.assignments.values():
            for file in map(Path, files):
                if desk := self.desks.get(file.stem):
                    graded = self._graded(file)
                    if graded.exists() and read_mark(graded) != desk.digest(file):
                        self.log.warning("%s: handed in anew.", file.parent)
                        shutil.rmtree(graded.parent)
                    if (self.parent.force or not graded.exists()) and not desk.find(file):
                        self._start_sandbox(desk)

    def _graded(self, submitted: Path) -> Path:
        """Return where the graded notebook of a submitted one lies."""
        names = self.parent.init_single_notebook_resources(str(submitted))["nbgrader"]
        course = self.parent.coursedir
        where = (course.autograded_directory, names["student"], names["assignment"])
        return Path(course.format_path(*where), submitted.name)

    def _start_sandbox(self, desk: Desk) -> None:
        from autograder.sandbox.command import SandboxMissing

        try:
            _ = desk.launcher  # which is made when it is first asked for
        except SandboxMissing as error:
            self._refuse(
                f"{error}\nHere that is: nbgrader autograde --Judge.unsafe_no_sandbox=True"
            )
        except (OSError, ValueError) as error:
            self._refuse(str(error))

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

        desk = self.desks[names["notebook"]]
        if not desk.find(path):
            self._start_sandbox(desk)
        result, notebook = desk.judge(path)
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
    """Judges the submissions to one lesson, each once.

    Args:
        released: the lesson's notebook as students get it.
        grading: the folder with the secret and the kept results.
        settings: SETTINGS of `Judge`, by name.
        judge_again: see `Judge`.
        log: told of a result that cannot be kept.

    Raises:
        ValueError, PermissionError: the released notebook or the secret cannot be used.
    """

    def __init__(
        self,
        released: Path,
        grading: Path,
        settings: Mapping[str, Any],
        judge_again: bool,
        log: Logger,
    ) -> None:
        # Only here: nbgrader's other commands need none of it.
        from autograder.assignment import read_assignment
        from autograder.kept_results import KeptResults, digest_of_grader, digest_of_submission
        from autograder.secret import read_secret

        self.released = nbformat.read(released, as_version=4)
        self.assignment = read_assignment(released)
        self.secret = read_secret(grading / "secret")
        self.settings, self.judge_again = settings, judge_again
        self.digest = cache(digest_of_submission)
        self.log = log
        self.results = KeptResults(
            grading / "results" / self.assignment.module,
            digest_of_grader(released, self.secret),
            settings,
        )
        self._stack = ExitStack()
        self.close = self._stack.close

    @cached_property
    def launcher(self) -> Launcher:
        """Starts the students' processes.

        Raises:
            SandboxMissing, ValueError: see `Launcher`.
        """
        from autograder.sandbox.launch import Launcher

        launcher = Launcher(self.assignment.module, self.settings["unsafe_no_sandbox"])
        self._stack.callback(launcher.close)
        return launcher

    def find(self, path: Path) -> Kept | None:
        """Return the result that is kept of a file, if it counts."""
        return None if self.judge_again else self.results.find(self.digest(path))

    def judge(self, path: Path) -> tuple[Any, nbformat.NotebookNode]:
        """Judge a file, or find its result; return that and the feedback notebook."""
        from autograder.assignment import BadSubmission, read_cells
        from autograder.report.feedback import feedback_notebook

        kept = self.find(path) or self._judge(path)
        try:
            _, cells = read_cells(path.absolute())
        except BadSubmission:
            cells = []
        notebook = feedback_notebook(cells, self.released, kept.result, kept.level)
        notebook.metadata[MARK] = self.digest(path)
        return kept.result, notebook

    def _judge(self, path: Path) -> Kept:
        """Run a file's code, ask, and keep the result."""
        from autograder.judge import grade_one
        from autograder.kept_results import Kept
        from autograder.session import Deadlines

        path, given = path.absolute(), self.settings
        seconds = Deadlines(
            *(given[f"{part}_seconds"] for part in ("cell", "question", "submission"))
        )
        with self.launcher.start_for(path.parent) as start:
            result = grade_one(
                path, self.assignment, start, self.secret, seconds, given["follow_through"]
            )
        kept = Kept(result, self.launcher.level)
        try:
            self.results.keep(self.digest(path), kept)
        except OSError as error:
            self.log.error("%s: graded, but the result cannot be kept: %s", path.parent, error)
        return kept


def read_mark(graded: Path) -> str:
    """Read of which files a graded notebook was made; "" when that cannot be told."""
    try:
        return str(json.loads(graded.read_bytes())["metadata"].get(MARK, ""))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""


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
