"""Submissions to judge: notebooks as students hand them in, and processes to run them in."""

from __future__ import annotations

import atexit
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import nbformat
from confined import HAS_SANDBOX
from nbformat.v4 import new_code_cell

from autograder.assignment import Assignment, read_assignment
from autograder.authoring.notebook import write_notebook
from autograder.authoring.release import student_notebook
from autograder.authoring.source import Lesson
from autograder.judge import grade_one
from autograder.lessons import lesson_folders
from autograder.result import Result
from autograder.sandbox import submission_view
from autograder.sandbox.child import Child
from autograder.sandbox.fork_server import ForkServer
from autograder.sandbox.launch import bare, lay_out_view, sandboxed
from autograder.session import Deadlines
from lessons import COURSE

ORDER = list(lesson_folders())
SECRET = b"the secret of these tests"


@cache
def released(lesson: Lesson) -> str:
    """The text of the lesson's notebook as students get it."""
    return student_notebook(lesson, write_notebook(lesson))


def answers(lesson: Lesson) -> dict[str, str]:
    """The reference answers, by grade_id."""
    return {
        cell.grade_id: "\n".join(
            line
            for line in cell.source.splitlines()
            if not line.strip().startswith(("### BEGIN", "### END"))
        )
        for cell in lesson.cells
        if cell.solution
    }


def submission(lesson: Lesson, written: Mapping[str, str]) -> nbformat.NotebookNode:
    """The student's notebook with these answers written into it, by grade_id."""
    notebook = nbformat.reads(released(lesson), as_version=4)
    for cell in notebook.cells:
        cell.source = written.get(cell.id, cell.source)
    return notebook


def solved(lesson: Lesson, *more: str, **instead: str) -> nbformat.NotebookNode:
    """Every answer written, or `instead` of one another one; then `more` cells at the end."""
    notebook = submission(lesson, {**answers(lesson), **instead})
    notebook.cells += [new_code_cell(source) for source in more]
    return notebook


def short(lesson: Lesson, *more: str, **instead: str) -> nbformat.NotebookNode:
    """`solved` without the cells that only show something, and take their time for it."""
    notebook = solved(lesson, *more, **instead)
    end = len(notebook.cells) - len(more)
    notebook.cells = [
        cell
        for place, cell in enumerate(notebook.cells)
        if place >= end or "nbgrader" in cell.metadata or "export" in cell.metadata.get("tags", [])
    ]
    return notebook


def between_tests(notebook: nbformat.NotebookNode, source: str) -> nbformat.NotebookNode:
    """The notebook with a cell of the student's own behind every test cell."""
    for place in reversed(range(len(notebook.cells))):
        if notebook.cells[place].metadata.get("nbgrader", {}).get("grade"):
            notebook.cells.insert(place + 1, new_code_cell(f"# {place}\n{source}"))
    return notebook


def opening(lesson: Lesson, *first: str, **instead: str) -> nbformat.NotebookNode:
    """`short` behind these cells, which run whatever is right later."""
    notebook = short(lesson, **instead)
    notebook.cells[:0] = [new_code_cell(source) for source in first]
    return notebook


@cache
def fork_server() -> ForkServer | None:
    """Return the server from which all processes of this one are forked; None without bubblewrap.

    A cold start takes two seconds, most of them for importing torch."""
    if not HAS_SANDBOX:
        return None
    server = ForkServer()
    atexit.register(server.close)
    return server


class Desk:
    """Judges submissions to one lesson, each in a folder of its own; in the sandbox, if bubblewrap is
    installed."""

    def __init__(self, folder: str, place: Path) -> None:
        self.lesson, self.place = COURSE.read(folder), place
        place.mkdir(parents=True, exist_ok=True)
        notebook = place / self.lesson.student.name
        notebook.write_text(released(self.lesson), encoding="utf-8")
        self.assignment: Assignment = read_assignment(notebook)
        self.view = lay_out_view(place / "view", self.lesson.module)

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.place))

    def start(self, folder: Path | None = None) -> Child:
        """Start a process with nothing around it."""
        home = self.new_folder()
        return bare(self.view, self.lesson.module, folder or home, home)

    def start_for(self, folder: Path) -> Child:
        """Start a process for the folder of a submission, as a grader does."""
        if (server := fork_server()) is None:
            return self.start(folder)
        copy = submission_view.lay_out(folder, self.new_folder() / "submission")
        return sandboxed(server.popen, self.view, self.lesson.module, copy)

    def write(self, content: nbformat.NotebookNode | bytes) -> Path:
        """A submitted file."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        file = self.new_folder() / self.lesson.student.name
        file.write_bytes(data)
        return file

    def judge(
        self,
        content: nbformat.NotebookNode | bytes | Path,
        start: Callable[[], Child] | None = None,
        secret: bytes = SECRET,
        follow_through: bool = True,
        **deadlines: float,
    ) -> Result:
        file = content if isinstance(content, Path) else self.write(content)
        start = start or (lambda: self.start_for(file.parent))
        seconds = Deadlines(**deadlines)
        return grade_one(file, self.assignment, start, secret, seconds, follow_through)
