"""An attack read from its file, and the submission that it makes."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell
from submissions import answers, submission

from autograder.authoring.source import Lesson
from lessons import COURSE

FOLDER = Path(__file__).parent
KEYS = {"points", "lesson", "start", "state", "says", "stops"}


@dataclass(frozen=True)
class Attack:
    """One file; see the package for what stands in it."""

    path: Path

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}-{self.path.stem}".replace("_", "-")

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def expected(self) -> dict[str, str]:
        """The lines after the story."""
        story, _, lines = ast.get_docstring(ast.parse(self.source)).partition("\n\n")
        pairs = dict(line.split(": ", 1) for line in lines.splitlines())
        if not story or "points" not in pairs or set(pairs) - KEYS:
            raise ValueError(f"{self.path} needs a story and points; it may say {sorted(KEYS)}")
        return pairs

    @property
    def folder(self) -> str:
        """Of the lesson."""
        return self.expected.get("lesson", "00-start")

    @property
    def solved(self) -> bool:
        return self.expected.get("start") == "solved"

    @property
    def points(self) -> tuple[float, float]:
        """The least and the most that it may get."""
        words = self.expected["points"].split()
        return (0 if words[0] == "at" else float(words[-1])), float(words[-1])

    def hand_in(self, folder: Path, facts: Mapping[str, object]) -> None:
        """Write the submission into a folder."""
        lesson = COURSE.read(self.folder)
        notebook = small_notebook(lesson, self.solved)
        notebook.cells.insert(0, new_code_cell(f"FACTS = {dict(facts)!r}"))
        file = folder / lesson.student.name
        if "def submit(" not in self.source:
            notebook.cells.append(new_code_cell(self.source))
            write(with_tests_last(notebook), file)
            return
        content = runpy.run_path(str(self.path))["submit"](notebook, folder)
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content is not None:  # where that is the attack, the order is its own
            write(
                content if self.path.parent.name == "notebook" else with_tests_last(content), file
            )


def small_notebook(lesson: Lesson, solved: bool) -> nbformat.NotebookNode:
    """The released notebook without the code cells that are neither answers nor tests: pictures
    and measurements take time and are not what is attacked."""
    notebook = submission(lesson, answers(lesson) if solved else {})
    exported = {cell.source.strip() for cell in lesson.cells if "export" in cell.tags}
    notebook.cells = [
        cell
        for cell in notebook.cells
        if cell.cell_type != "code"
        or "nbgrader" in cell.metadata
        or cell.source.strip() in exported
    ]
    return notebook


def with_tests_last(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Put the graded cells behind all others: what comes after the last of them need not run."""
    notebook.cells.sort(key=lambda cell: cell.metadata.get("nbgrader", {}).get("grade", False))
    return notebook


def write(notebook: nbformat.NotebookNode, file: Path) -> None:
    """Without nbformat's own repairs: what is odd stays so."""
    file.write_text(nbformat.v4.writes(notebook), encoding="utf-8")


def find_attacks() -> list[Attack]:
    return [Attack(path) for path in sorted(FOLDER.glob("*/*.py"))]
