"""Choose the cells to replace so that one mistake costs only its own points.

A question may be lost through another cell's mistake: a wrong `causal_mask` makes every logit wrong.
Such a question is asked again, in a fresh process, with those other cells replaced by the reference,
but never its own. If it passes, it is credited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autograder.assignment import Assignment, CodeCell, Question, names_defined_in
from autograder.lessons import find
from autograder.lessons.assembly import by_grade_id
from autograder.lessons.reach import within_reach

SLOW = 5
"""A cell that took more seconds than this and defines nothing is left out when cells run again."""


def own_cells(assignment: Assignment, question: Question) -> set[str]:
    """Return the answer cells that a question is about: those right before it, or else all that define
    a name that it calls."""
    needs = set(find(f"{assignment.module}.{question.check}").needs)
    calls = {name for name, defined in assignment.answers.items() if defined & needs}
    return calls & set(question.after) or calls


def cells_to_replace(
    assignment: Assignment,
    question: Question,
    lost: Collection[Question],
    cells: Sequence[CodeCell],
) -> frozenset[str]:
    """Return the cells to replace before a lost question is asked again: those that it depends on, its
    own aside, and that another lost question is about. There are none if its own cells are
    unchanged."""
    written = {cell.source.strip() for cell in cells}
    if any(assignment.stubs[name] in written for name in own_cells(assignment, question)):
        return frozenset()
    failing = {name for other in lost for name in own_cells(assignment, other)}
    needs = find(f"{assignment.module}.{question.check}").needs
    reached = within_reach(assignment.module, needs)
    return frozenset(
        name
        for name in failing - own_cells(assignment, question)
        if assignment.answers[name] & reached
    )


def replace_cells(
    assignment: Assignment,
    cells: Sequence[CodeCell],
    names: frozenset[str],
    seconds: Mapping[int, float],
) -> tuple[CodeCell, ...]:
    """Insert the reference after every cell of the student that defines a replaced name, and in place of
    every test cell.

    Args:
        names: the answer cells that are replaced.
        seconds: the seconds of each of the student's cells before; a slow one that defines nothing is
            left out.
    """
    reference = by_grade_id(assignment.module, {})
    right = "\n\n\n".join(source for name, source in reference.items() if name in names)
    defined = frozenset().union(*(assignment.answers[name] for name in names))
    replaced: list[CodeCell] = []
    for cell in cells:
        slow = seconds.get(cell.number, 0) > SLOW and not names_defined_in(cell.source)
        if cell.source and not slow:
            replaced.append(CodeCell(cell.number, cell.source))
        if cell.asks or names_defined_in(cell.source) & defined:
            replaced.append(CodeCell(cell.number, right, cell.asks))
    replaced.append(CodeCell(1 + max((cell.number for cell in cells), default=0), right))
    return tuple(replaced)


def sentence(names: Collection[str]) -> str:
    """Return the sentence that says which cells were replaced when a question passed."""
    return f"Credited: right with a right {' and a right '.join(sorted(names))}."
