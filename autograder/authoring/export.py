"""Export a lesson's answers as a module of `course.minigpt`, for the lessons after it."""

from __future__ import annotations

import ast
import subprocess
import sys

from autograder.authoring.source import Lesson, LessonError, parse_python


def module_text(lesson: Lesson) -> str:
    """Write the module's source: export cells and answers in order, imports merged at the top."""
    imports: list[str] = []
    bodies: list[str] = []
    for cell in lesson.answer_cells:
        new, body = _split_imports(cell.answer)
        imports += new
        if body.strip():
            bodies.append(body)
    header = (
        f'"""Lesson {lesson.number}: {lesson.title}.\n\nBuilt from '
        f'solutions/{lesson.folder}/{lesson.module}.py by `make build`: change it there.\n"""\n\n'
    )
    return _tidy(lesson, header + "\n".join(imports) + "\n\n\n" + "\n\n\n".join(bodies) + "\n")


def _split_imports(source: str) -> tuple[list[str], str]:
    """Split a cell into its imports and the rest."""
    lines = source.splitlines()
    imports = []
    for node in parse_python(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            first = node.lineno - 1
            imports.append("\n".join(lines[first : node.end_lineno]))
            while first > 0 and (lines[first - 1] or "").startswith("#"):
                first -= 1  # what a comment above an import says is said to the lesson's reader
            lines[first : node.end_lineno] = [None] * (node.end_lineno - first)
    return imports, "\n".join(line for line in lines if line is not None)


def _tidy(lesson: Lesson, text: str) -> str:
    """Sort the imports, leave out those that no answer uses, and format, all by ruff."""
    name = str(lesson.exported)
    lint = ["check", "--quiet", "--fix", "--exit-zero", "--select", "I,F401,F811"]
    for command in (lint, ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=lesson.course.root,
        )
        if done.returncode:
            raise LessonError(f"{lesson.folder}: its answers make no module: {done.stderr}")
        text = done.stdout
    return text
