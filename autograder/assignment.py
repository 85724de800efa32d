"""Read what a lesson asks and what a student handed in: plain JSON, in which nothing is trusted."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_FILE = 256 * 2**20
"""Bytes of the largest notebook that is read; honest ones have held 60 MB of output."""


class BadSubmission(Exception):
    """A file that is no notebook; the message says what it is."""


@dataclass(frozen=True)
class Question:
    """A graded cell: the name of its check, and its points."""

    check: str
    points: float


@dataclass(frozen=True)
class Assignment:
    """What a lesson asks.

    Attributes:
        module: such as "kv_cache".
        questions: in the order of the lesson.
        tests: the sources of its graded cells as students have them.
    """

    module: str
    questions: tuple[Question, ...]
    tests: frozenset[str]


@dataclass(frozen=True)
class CodeCell:
    """A code cell of a submission, numbered among all its cells from 1."""

    number: int
    source: str


def read_assignment(released: Path) -> Assignment:
    """Read what a lesson asks from the notebook that students get, such as
    lessons/03-kv-cache/kv_cache.ipynb."""
    cells = json.loads(released.read_text(encoding="utf-8"))["cells"]
    graded = [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade")]
    return Assignment(
        released.stem,
        tuple(
            Question(
                cell["metadata"]["nbgrader"]["grade_id"], cell["metadata"]["nbgrader"]["points"]
            )
            for cell in graded
        ),
        frozenset(text_of(cell["source"]).strip() for cell in graded),
    )


def read_submission(path: Path, assignment: Assignment) -> tuple[str, tuple[CodeCell, ...]]:
    """Read a submission: the file's SHA-256, and its code cells without the lesson's test cells.

    A test cell is known by its source and by nothing else: tags, ids and other metadata are the
    student's to change. One that was edited is a cell like any other.

    Raises:
        BadSubmission: it is missing, no regular file, too large, or no notebook.
    """
    digest, found = read_cells(path)
    cells = (
        CodeCell(number, source_of(cell))
        for number, cell in enumerate(found, start=1)
        if type(cell) is dict and cell.get("cell_type") == "code"
    )
    kept = tuple(cell for cell in cells if cell.source.strip() not in {"", *assignment.tests})
    return digest, kept


def read_cells(path: Path) -> tuple[str, list[Any]]:
    """Read a submission: the file's SHA-256, and its cells as they stand there, whatever they are.

    Raises:
        BadSubmission: see `read_submission`.
    """
    data = _read_bytes(path)
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadSubmission(f"{path.name} is not UTF-8: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise BadSubmission(f"{path.name} is no notebook: {str(error)[:200]}") from None
    found = _cells(notebook)
    if found is None:
        raise BadSubmission(f"{path.name} is JSON, but no notebook: it has no list of cells")
    return hashlib.sha256(data).hexdigest(), found


def source_of(cell: dict[str, Any]) -> str:
    """Return the source of a code cell in nbformat 4 or 3, or of another cell in 4."""
    return text_of(cell.get("source", cell.get("input")))


def _read_bytes(path: Path) -> bytes:
    try:
        # Neither followed, when it is a link, nor waited for, when it is a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise BadSubmission(f"there is no {path.name}") from None
    except OSError as error:
        raise BadSubmission(f"{path.name} cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadSubmission(f"{path.name} is no regular file")
        if status.st_size > MAX_FILE:
            raise BadSubmission(
                f"{path.name} has {status.st_size:,} bytes; {MAX_FILE:,} are read at most"
            )
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_FILE)
    finally:
        os.close(fd)


def _cells(notebook: Any) -> list | None:
    """Return the list of cells, in nbformat 4 or, page by page, in 3."""
    if type(notebook) is not dict:
        return None
    if type(notebook.get("cells")) is list:
        return notebook["cells"]
    pages = notebook.get("worksheets")
    if type(pages) is not list or not all(type(page) is dict for page in pages):
        return None
    lists = [page.get("cells") for page in pages]
    return [cell for cells in lists if type(cells) is list for cell in cells]


def text_of(source: Any) -> str:
    """Join a text that a notebook writes as one string or as a list of lines."""
    if type(source) is list:
        return "".join(line for line in source if type(line) is str)
    return source if type(source) is str else ""
