"""Lay out what students wrote as .py files, for programs that find similar code: JPlag and Dolos.

    DIR/submissions/ada/kv_cache.py    the cells that ada wrote, in their order
    DIR/base/kv_cache.py               the lesson's own cells, which count for nobody
    DIR/info.csv                       who and when, for Dolos

    java -jar jplag.jar -l python3 -bc DIR/base DIR/submissions
    dolos run -l python -i DIR/base/kv_cache.py DIR/info.csv

No code runs. Both read a file as Python, so lines that only a notebook understands become comments,
and so does a cell that is no Python at all: JPlag would leave out the whole file for it.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import hmac
import json
import re
import warnings
from collections.abc import Sequence
from datetime import UTC
from io import StringIO
from pathlib import Path

from autograder.assignment import Assignment, BadSubmission, read_submission, source_of
from autograder.classroom.course import Lesson
from autograder.classroom.exporting.folders import whole_folder
from autograder.classroom.exporting.table_cells import no_formula
from autograder.classroom.standing import Standing
from autograder.classroom.wording import one_line
from autograder.desk import Desk
from course.files.writing import write_whole

HEADER = "# Cells of a notebook, in their order; magics are comments.\n# -----\n"
INFO = ("filename", "label", "created_at", "full_name")
_MAGIC = re.compile(r"\s*(?:[%!?]|[\w.]+\s*=\s*[%!]|.*\?\s*$)")
_OTHER_LANGUAGE = re.compile(r"\s*%%(?!(?:time|timeit|capture|prun|python3?)\b)")
_LINE = re.compile(r"\r\n|\r|\n")


def write_code(
    lesson: Lesson, desk: Desk, table: Sequence[Standing], target: Path, anonymous: bool
) -> list[str]:
    """Write the folder; where names are left out, write which is whose beside it.

    Returns:
        A line for everyone who handed in what cannot be read.

    Raises:
        CannotStart: there is something at the target.
        OSError: it cannot be written.
    """
    left_out, names, info = [], {}, []
    module = f"{lesson.module}.py"
    with whole_folder(target) as folder:
        _write(folder / "base" / module, _base(lesson.released))
        for standing in table:
            student = standing.student
            cells, why = _cells_of(standing, desk.assignment)
            if cells:
                name = _alias(desk.secret, student.id) if anonymous else student.id
                names[name] = student.id
                _write(folder / "submissions" / name / module, cells)
                info.append(_info(f"submissions/{name}/{module}", standing, name, anonymous))
            elif why:
                left_out.append(f"{one_line(student.id)}: {why}")
        write_whole(folder / "info.csv", _csv([INFO, *sorted(info)]))  # not in the order of ids
    if anonymous:
        key = target.with_name(f"{target.name}-names.csv")
        whose = sorted((name, no_formula(student)) for name, student in names.items())
        write_whole(key, _csv([("name", "id"), *whose]))
    return left_out


def _alias(secret: bytes, student: str) -> str:
    """Name a student by nothing that others know; the same in every lesson of this grader."""
    digest = hmac.digest(secret, f"alias:{student}".encode("utf-8", "replace"), hashlib.sha256)
    return f"student-{digest.hex()[:10]}"


def _cells_of(standing: Standing, assignment: Assignment) -> tuple[list[str], str]:
    """Read what a student wrote, no cell of the lesson as it was released; or say why that fails."""
    if not standing.submission:
        return [], ""
    if not standing.submission.notebook:
        return [], standing.reason
    try:
        _, cells = read_submission(standing.submission.notebook.absolute(), assignment)
    except BadSubmission as error:
        return [], one_line(str(error))
    released = {*assignment.given, *assignment.stubs.values(), ""}
    return [cell.source for cell in cells if cell.source.strip() not in released], ""


def _base(released: Path) -> list[str]:
    cells = json.loads(released.read_text(encoding="utf-8"))["cells"]
    return [source_of(cell) for cell in cells if cell["cell_type"] == "code"]


def _write(path: Path, cells: Sequence[str]) -> None:
    text = HEADER + "\n\n".join(as_python(cell).rstrip() for cell in cells) + "\n"
    write_whole(path, text.encode("utf-8", "replace"))


def as_python(cell: str) -> str:
    """Return a cell as lines that Python can read: what it cannot read becomes a comment."""
    lines = _LINE.split(cell)
    if not _is_python(cell):
        other = _OTHER_LANGUAGE.match(next(filter(str.strip, lines), ""))
        lines = [f"# {line}" if other or _MAGIC.match(line) else line for line in lines]
        if not _is_python("\n".join(lines)):
            lines = [f"# {line}" for line in _LINE.split(cell)]
    return "\n".join(lines)


def _is_python(text: str) -> bool:
    """Tell whether a text can be read as a cell: with await, as in a notebook. Nothing is run."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "cell", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _info(path: str, standing: Standing, name: str, anonymous: bool) -> list[str]:
    student, at = standing.student, standing.handed_in
    created = at.replace(tzinfo=UTC).isoformat(" ", "seconds") if at else ""
    if anonymous:
        return [path, "", created, name]
    return [path, no_formula(student.section), created, no_formula(student.name)]


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")
