"""Compare a notebook's graded cells with those of the lesson as it was released."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from course.files.notebooks import nbgrader_of
from course.files.released import Released, source_hash


class Fact(NamedTuple):
    """One line that `hand-in` prints: whether it is right, and the text."""

    right: bool
    words: str


def compare_cells(lesson: Released, cells: list[dict[str, Any]]) -> list[Fact]:
    """List which of a lesson's cells are missing, doubled or changed, or one fact if all are right."""
    names = Counter(name for cell in cells if (name := nbgrader_of(cell).get("grade_id")))
    graded = [cell.name for cell in lesson.graded]
    wrong = [
        Fact(False, f"{name}: {_trouble(names[name])}")
        for name in [*lesson.solutions, *graded]
        if names[name] != 1
    ]
    hashes = {nbgrader_of(cell).get("grade_id"): source_hash(cell["source"]) for cell in cells}
    wrong += [
        Fact(False, f"{cell.name}: this graded cell was changed. Grading uses the released one.")
        for cell in lesson.graded
        if names[cell.name] == 1 and hashes[cell.name] != cell.sha256
    ]
    return wrong or [Fact(True, f"All {len(graded)} graded cells are present and unchanged.")]


def _trouble(count: int) -> str:
    if count:
        return f"there are {count} such cells; delete those that are copies."
    return "this cell is missing. Copy it from a fresh download of the lesson."
