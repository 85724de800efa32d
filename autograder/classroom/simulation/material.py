"""Fill in a lesson's notebook as students do: with answers, with cells of their own, with their name."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from autograder.assignment import Assignment, names_defined_in, read_assignment, source_of
from autograder.lessons import SOLUTIONS, lesson_folders, module_of
from autograder.lessons.assembly import by_grade_id
from autograder.lessons.exhibits import Answer, Bug, bugs_of

ROOT = SOLUTIONS.parent
Notebook = dict[str, Any]
"""A notebook as plain JSON."""


@dataclass(frozen=True)
class Material:
    """A lesson as it is released, and what is known of right and wrong answers to it.

    Attributes:
        folder: the lesson's, such as "03-kv-cache".
    """

    folder: str

    @property
    def module(self) -> str:
        """The notebook's name, such as "kv_cache"."""
        return module_of(self.folder)

    @property
    def released(self) -> Path:
        """The notebook as students get it."""
        return ROOT / "lessons" / self.folder / f"{self.module}.ipynb"

    @cached_property
    def assignment(self) -> Assignment:
        """The lesson's questions and cells."""
        return read_assignment(self.released)

    @cached_property
    def bugs(self) -> list[Bug]:
        """The museum's wrong answers that stand in a cell which students fill."""
        right = by_grade_id(self.module, {})
        return [
            bug for bug in bugs_of(self.module) if by_grade_id(self.module, bug.answer) != right
        ]

    def answers(self, instead: Answer | None = None) -> dict[str, str]:
        """Return right answers by cell, or others in place of some."""
        return by_grade_id(self.module, instead or {})

    def notebook(self, answers: Mapping[str, str], author: str) -> Notebook:
        """Write answers, by the names of their cells, into a copy of the released notebook."""
        notebook = copy.deepcopy(_read(self.released))
        for cell in notebook["cells"]:
            if answer := answers.get(cell["id"]):
                cell["source"] = answer.splitlines(keepends=True)
        words = [f"Handed in by {author}"]
        name = {"cell_type": "markdown", "id": "handed-in-by", "metadata": {}, "source": words}
        notebook["cells"].insert(0, name)
        return notebook

    def stranger(self) -> Material:
        """Return the first lesson that says nothing of what this one asks for."""
        names = frozenset().union(*self.assignment.answers.values())
        for folder in lesson_folders().values():
            other = Material(folder)
            sources = "\n".join(source_of(cell) for cell in _read(other.released)["cells"])
            if folder != self.folder and not any(name in sources for name in names):
                return other
        raise ValueError(f"every lesson says something of what {self.folder} asks for")


@cache
def _read(notebook: Path) -> Notebook:
    return json.loads(notebook.read_text(encoding="utf-8"))


def add_cell(notebook: Notebook, source: str, printed: str = "") -> Notebook:
    """Add a cell of the student's own behind the first answer, before anything is asked."""
    cells = notebook["cells"]
    first = next(n for n, cell in enumerate(cells) if _is_answer(cell))
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    cell = {"cell_type": "code", "id": "my-own-cell", "metadata": {}, "execution_count": None}
    cells.insert(first + 1, {**cell, "outputs": outputs, "source": source})
    return notebook


def _is_answer(cell: Mapping[str, Any]) -> bool:
    return cell["metadata"].get("nbgrader", {}).get("solution", False)


def looping(stub: str) -> str:
    """Write an answer that never returns, in place of all that a stub defines."""
    definitions = [
        f"def {name}(*arguments, **options):\n    while True:\n        pass"
        for name in sorted(names_defined_in(stub))
    ]
    return "\n\n\n".join(definitions)


def in_format_3(notebook: Notebook) -> Notebook:
    """Write the code cells as a notebook program of ten years ago did."""
    cells = [
        {"cell_type": "code", "language": "python", "outputs": [], "input": cell["source"]}
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    page = {"cells": cells, "metadata": {}}
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [page]}


def to_bytes(notebook: Notebook) -> bytes:
    """Write a notebook's file as Jupyter does."""
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()
