"""Record what a student's machine has to know of a released lesson, see `course.files.released`."""

from __future__ import annotations

import ast
import json

import nbformat

from autograder.authoring.source import Lesson, parse_python
from course.files.released import source_hash


def released_text(lesson: Lesson, student: str) -> str:
    """Write the record of a lesson as JSON.

    Args:
        student: the text of the student's notebook.
    """
    code = [
        cell for cell in nbformat.reads(student, as_version=4).cells if cell.cell_type == "code"
    ]
    cells = [cell for cell in code if cell.get("metadata")]
    noted = [(cell, cell.metadata.get("nbgrader", {})) for cell in cells]
    record = {
        "folder": lesson.folder,
        "title": lesson.title,
        "graded": [
            [note["grade_id"], note["points"], source_hash(cell.source)]
            for cell, note in noted
            if note.get("grade")
        ],
        "solutions": [note["grade_id"] for _, note in noted if note.get("solution")],
        "imports": imports_of_answers(lesson),
    }
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def imports_of_answers(lesson: Lesson) -> dict[str, list[str]]:
    """List what a lesson imports of earlier lessons' answers: names by module, in their order."""
    imports: dict[str, list[str]] = {}
    for cell in lesson.cells:
        if cell.kind == "markdown":
            continue
        for node in ast.walk(parse_python(cell.source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "course.minigpt."
            ):
                names = imports.setdefault(node.module.removeprefix("course.minigpt."), [])
                names += [alias.name for alias in node.names if alias.name not in names]
    return imports
