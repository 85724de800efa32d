"""Read a released lesson and a submission: plain JSON, in which nothing is trusted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.setup_cell import as_released

RELEASED = Path(__file__).resolve().parents[1] / "course" / "checks" / "released"
"""The names of each lesson's graded cells."""
MAX_FILE = 128 * 2**20
"""Bytes of the largest notebook that is read; honest ones have held 60 MB of output."""
MAX_VALUES = 512 * 2**20
"""Bytes of memory that a notebook's values may take, by the estimate of `_size_of_values`."""
_SIGNS = {b",": 36, b"[": 96, b"{": 240}
"""Bytes of memory for the value that such a sign announces in JSON: a number, a list, a dict."""
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TEXT_SIZE = 56
"""Bytes of memory for a string, its characters aside."""
DEFINITION = re.compile(
    r"^(?:(?:async\s+)?def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
"""A line at the top level of a cell that defines or assigns a name."""


class BadSubmission(Exception):
    """The file is not a notebook; the message says what it is."""


@dataclass(frozen=True)
class Question:
    """A graded cell.

    Attributes:
        check: the name of its check.
        points: its points.
        test: its source as students have it.
        after: the names of the answer cells directly before it, or directly before the group of graded
            cells that it belongs to.
    """

    check: str
    points: float
    test: str
    after: tuple[str, ...]


@dataclass(frozen=True)
class Assignment:
    """The questions of a lesson, and its cells as released.

    Attributes:
        module: such as "kv_cache".
        questions: in the order of the lesson.
        answers: the functions and classes that each answer cell defines, by the cell's name.
        stubs: the source of each answer cell as students get it.
        given: the sources of the other code cells.
        written: the points of each cell for prose, by the cell's name; they are given by hand.
    """

    module: str
    questions: tuple[Question, ...]
    answers: Mapping[str, frozenset[str]]
    stubs: Mapping[str, str]
    given: frozenset[str]
    written: Mapping[str, float]

    @property
    def most(self) -> float:
        """The points of the lesson."""
        return sum(question.points for question in self.questions) + sum(self.written.values())

    @property
    def tests(self) -> dict[str, str]:
        """The check of each graded cell, by the cell's source."""
        return {question.test: question.check for question in self.questions}


@dataclass(frozen=True)
class CodeCell:
    """A code cell of a submission.

    Attributes:
        number: its number among all cells, from 1.
        source: the code to run; "" for a graded cell as it was released.
        asks: the check whose question is asked at this cell, or "".
    """

    number: int
    source: str
    asks: str = ""


def in_words(check: str) -> str:
    """Return the name of a question in words: "Mask is rectangular" for "mask_is_rectangular"."""
    words = check.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def read_assignment(released: Path) -> Assignment:
    """Read a lesson's questions from the released notebook, such as
    lessons/03-kv-cache/kv_cache.ipynb."""
    questions: list[Question] = []
    answers: dict[str, frozenset[str]] = {}
    stubs: dict[str, str] = {}
    given: set[str] = set()
    written: dict[str, float] = {}
    before: list[str] = []  # answer cells since the last graded one
    together: tuple[str, ...] = ()
    for cell in json.loads(released.read_text(encoding="utf-8"))["cells"]:
        kind, source = cell["metadata"].get("nbgrader", {}), text_of(cell.get("source")).strip()
        if kind.get("grade") and kind.get("solution"):
            written[kind["grade_id"]] = kind["points"]
        elif kind.get("grade"):
            together, before = tuple(before) or together, []
            questions.append(Question(kind["grade_id"], kind["points"], source, together))
        elif kind.get("solution"):
            before.append(kind["grade_id"])
            answers[kind["grade_id"]] = frozenset(names_defined_in(source))
            stubs[kind["grade_id"]] = source
        elif cell["cell_type"] == "code":
            given.add(source)
    return Assignment(released.stem, tuple(questions), answers, stubs, frozenset(given), written)


def read_submission(path: Path, assignment: Assignment) -> tuple[str, tuple[CodeCell, ...]]:
    """Return a submission's SHA-256 and its code cells.

    * A test cell is recognised by its source, since students can change tags, ids and other metadata. It
      is not run; it marks where the student tested.
    * An edited test cell runs like any other cell. It marks the same place if the name in its metadata is
      intact.

    Raises:
        BadSubmission: it is missing, not a regular file, too large, not a notebook, or another lesson's.
    """
    digest, listed = read_cells(path)
    cells = [
        _code_cell(number, cell, assignment.tests)
        for number, cell in enumerate(listed, start=1)
        if type(cell) is dict and cell.get("cell_type") == "code"
    ]
    names = frozenset().union(*assignment.answers.values())
    if not any(names & names_defined_in(cell.source) for cell in cells):
        _refuse_other_lesson(listed, assignment)
    return digest, tuple(cell for cell in cells if cell.asks or cell.source.strip())


def _refuse_other_lesson(cells: Sequence[Any], assignment: Assignment) -> None:
    """Refuse a notebook that has more graded cells of another lesson than of this one. Lessons have some
    names of checks in common.

    Raises:
        BadSubmission: it is so.
    """
    claimed = {claimed_name(cell) for cell in cells if type(cell) is dict}
    lessons = [json.loads(f.read_text(encoding="utf-8")) for f in sorted(RELEASED.glob("*.json"))]
    here = [len(claimed & {name for name, *_ in lesson["graded"]}) for lesson in lessons]
    most = max(here, default=0)
    if most > len(claimed & set(assignment.tests.values())):
        lesson = lessons[here.index(most)]
        raise BadSubmission(
            f"this is the notebook of lesson {lesson['folder'][:2]}, {lesson['title']}; that of "
            f"this lesson is {assignment.module}.ipynb"
        )


def _code_cell(number: int, cell: dict[str, Any], tests: Mapping[str, str]) -> CodeCell:
    source = source_of(cell)
    if check := tests.get(source.strip()):
        return CodeCell(number, "", check)
    name = claimed_name(cell)
    return CodeCell(number, source, name if name in tests.values() else "")


def claimed_name(cell: Mapping[str, Any]) -> str:
    """Return the name that a cell claims in its metadata or, if these were lost, by its id."""
    metadata = cell.get("metadata")
    named = metadata.get("nbgrader") if isinstance(metadata, Mapping) else None
    claim = named.get("grade_id") if isinstance(named, Mapping) else cell.get("id")
    return claim if type(claim) is str else ""


def names_defined_in(source: str) -> set[str]:
    """Return the names that a cell defines or assigns at its top level, even a cell with magics. Lines
    of a multi-line string may count as well."""
    return {name for groups in DEFINITION.findall(source) for name in groups if name}


def read_cells(path: Path) -> tuple[str, list[Any]]:
    """Return a submission's SHA-256 and all its cells, unchanged, whatever they are.

    Raises:
        BadSubmission: see `read_submission`.
    """
    data = _read_bytes(path)
    if _size_of_values(data) > MAX_VALUES:
        raise BadSubmission(f"{path.name} contains more numbers and lists than the judge reads")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadSubmission(f"{path.name} is not UTF-8: {error.reason}") from None
    except ValueError as error:
        raise BadSubmission(f"{path.name} is not a notebook: {str(error)[:200]}") from None
    except RecursionError:
        raise BadSubmission(f"{path.name} is not a notebook: it is nested too deeply") from None
    cells = _cells(notebook)
    if cells is None:
        raise BadSubmission(f"{path.name} is JSON but not a notebook: it has no list of cells")
    return hashlib.sha256(data).hexdigest(), cells


def source_of(cell: dict[str, Any]) -> str:
    """Return the source of a code cell in nbformat 4 or 3, or of another cell in 4; of a published set-up
    cell without its address."""
    return as_released(text_of(cell.get("source", cell.get("input"))))


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
            raise BadSubmission(f"{path.name} is not a regular file")
        if status.st_size > MAX_FILE:
            raise BadSubmission(
                f"{path.name} has {status.st_size:,} bytes; {MAX_FILE:,} are read at most"
            )
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_FILE)
    finally:
        os.close(fd)


def _size_of_values(data: bytes) -> int:
    """Estimate the memory that the values of a JSON file take, the characters of strings aside. This is
    done before they are built: 3 bytes for an empty list become 64."""

    def signs(begin: int, end: int) -> int:
        return sum(size * data.count(sign, begin, end) for sign, size in _SIGNS.items())

    at_most = signs(0, len(data)) + _TEXT_SIZE * data.count(b'"')
    if at_most <= MAX_VALUES:
        return at_most
    size, begin = 0, 0  # a text may be full of commas: count what stands outside
    for text in _TEXT.finditer(data):
        size += signs(begin, text.start()) + _TEXT_SIZE
        begin = text.end()
        if size > MAX_VALUES:
            return size
    return size + signs(begin, len(data))


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
    """Return a text that a notebook holds as one string or as a list of lines. Half a character, which
    JSON can hold and UTF-8 cannot, becomes U+FFFD, as in a browser."""
    if type(source) is list:
        source = "".join(line for line in source if type(line) is str)
    if type(source) is not str:
        return ""
    if source.isascii():
        return source
    return source.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
