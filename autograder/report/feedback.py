"""Lay out the notebook that formgrader and feedback show: the student's cells, sanitised, with verdicts.

It holds what was handed in, cell by cell, with its outputs, sanitised. Each of the lesson's graded
cells stands in it exactly once, as it was released, so without its hidden test; the points are its
one result, and the message is what it printed, which is the form in which nbgrader reads points.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from autograder.assignment import claimed_name, source_of
from autograder.report import sanitize
from autograder.result import Answer, Result

LARGEST = 32 * 2**20
"""Characters of all outputs of a notebook that are shown."""
Cell = Mapping[str, Any]
"""A cell as it was handed in: a dict of whatever."""


def feedback_notebook(
    submitted: list[Any], released: NotebookNode, result: Result, level: str
) -> NotebookNode:
    """Lay out one judged submission.

    Args:
        submitted: the cells as they were handed in, whatever they are; see `read_cells`.
        released: the lesson's notebook as students get it.
        result: the judge's result.
        level: the kind of sandbox that the code ran in, for the report at the top.
    """
    handed_in = [cell for cell in submitted if isinstance(cell, Mapping)]
    places = _places(handed_in, released)
    texts = {cell.source for cell in released.cells if cell.cell_type == "markdown"}
    cells = [_shown(cell, places.get(n), texts) for n, cell in enumerate(handed_in)]
    _add_missing(cells, released)
    _cut_outputs(cells)
    answers = {answer.check: answer for answer in result.answers}
    for cell in cells:
        if answer := answers.get(_grade_id(cell)):
            _write_answer(cell, answer)
    cells.insert(0, new_markdown_cell(sanitize.block(report(result, level))))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    shown = new_notebook(cells=cells, metadata=copy.deepcopy(released.metadata))
    nbformat.validate(shown)
    return shown


def report(result: Result, level: str) -> str:
    """Write what the judge says about the whole submission, as HTML."""
    most = sum(answer.max_points for answer in result.answers)
    lines = [f"{result.outcome}: {result.points:g} of {most:g} points. {level}"]
    if result.skipped:
        lines.append(f"{result.skipped} cells of the lesson, which no answer needs, were not run.")
    lines += filter(None, (result.reason, *result.cells))
    return sanitize.verbatim(sanitize.plain("\n".join(lines)))


def _places(handed_in: list[Cell], released: NotebookNode) -> dict[int, NotebookNode]:
    """Find the cells that stand for a named cell of the release, by number: a graded cell is
    known by its source, as for the judge, an answer, in code or in prose, by the name that it claims. Of
    several, the last counts, for it is what ran last."""
    named = [cell for cell in released.cells if _grade_id(cell)]
    tests = {cell.source.strip(): cell for cell in named if _is_test(cell)}
    answers = {(cell.cell_type, _grade_id(cell)): cell for cell in named if not _is_test(cell)}
    last = {}
    for number, cell in enumerate(handed_in):
        kind = str(cell.get("cell_type"))  # which may be anything, also a list
        original = tests.get(source_of(cell).strip()) if kind == "code" else None
        if original := original or answers.get((kind, claimed_name(cell))):
            last[_grade_id(original)] = (number, original)
    return dict(last.values())


def _grade_id(cell: NotebookNode) -> str | None:
    """Return the name of a released cell, or of one that stands for it."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _is_test(cell: NotebookNode) -> bool:
    """Tell whether the judge grades a named cell; what is also a solution is graded by hand."""
    return cell.metadata.nbgrader.grade and not cell.metadata.nbgrader.solution


def _shown(cell: Cell, original: NotebookNode | None, texts: set[str]) -> NotebookNode:
    """Sanitise one cell; of metadata it keeps only those of the released cell that it stands for."""
    if original and _is_test(original):
        return copy.deepcopy(original)
    source, kind = source_of(cell), cell.get("cell_type")
    metadata = copy.deepcopy(original.metadata) if original else {}
    if kind == "markdown":
        if source not in texts:  # the lesson's own text is harmless
            source = sanitize.markdown(source, cell.get("attachments"))
        return new_markdown_cell(source, metadata=metadata)
    text = sanitize.code(source)
    if kind != "code":
        return new_raw_cell(text)
    count = cell.get("execution_count")
    return new_code_cell(
        text,
        outputs=sanitize.outputs(cell.get("outputs")),
        execution_count=count if type(count) is int and 0 <= count < 10**6 else None,
        metadata=metadata,
    )


def _add_missing(cells: list[NotebookNode], released: NotebookNode) -> None:
    """Put each graded cell that was deleted or edited behind what it followed, or at the end."""
    place = len(cells)
    for original in released.cells:
        name = _grade_id(original)
        here = next((n for n, cell in enumerate(cells) if name and _grade_id(cell) == name), None)
        if here is not None:
            place = here + 1
        elif name and original.metadata.nbgrader.grade:
            cells.insert(place, copy.deepcopy(original))
            place += 1


def _write_answer(cell: NotebookNode, answer: Answer) -> None:
    """Write points and message as a graded cell's outputs. Nothing may go to stderr: nbgrader would give
    0 points for that, as it gives all of them for a cell without a result."""
    mark = {0.0: "FAIL", 1.0: "PASS"}.get(answer.score, "PART")
    message = sanitize.plain(f"{mark}  {answer.message}\n")
    points = min(max(float(answer.points), 0.0), float(answer.max_points))
    cell.outputs = [
        new_output("stream", name="stdout", text=message),
        new_output("execute_result", {"text/plain": repr(points)}),
    ]


def _cut_outputs(cells: list[NotebookNode]) -> None:
    """Leave out the outputs that come after too much of them."""
    shown, note = 0, "(These outputs are left out: the notebook holds too much of them.)\n"
    for cell in cells:
        size = len(str(cell.get("outputs") or ""))
        if shown + size > LARGEST:
            cell.outputs, size = [new_output("stream", name="stdout", text=note)], 0
        shown += size
