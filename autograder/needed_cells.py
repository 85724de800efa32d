"""Find the cells of a notebook that decide about its points: the student's, and those that they need.

* A lesson's own cells draw, measure and print. An unchanged one runs only if a cell that runs needs one
  of its names; of the others only the imports run.
* The names are those that Python itself finds (`symtable`). Where code can hide names, all cells run.
* A cell with magics always runs.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from autograder.assignment import CodeCell
from autograder.setup_cell import SETUP
from autograder.syntax import parse

HIDING = {"exec", "eval", "compile", "globals", "locals", "vars", "dir", "get_ipython"}
HIDING |= {"__import__", "__builtins__", "In", "Out", "_", "__", "___"}
HIDING |= {"_i", "_ii", "_iii", "_ih", "_oh", "_dh"}
"""Names through which code reaches other names without mentioning them."""
HIDING_ATTRIBUTES = {"modules", "__globals__", "f_globals", "__dict__", "user_ns", "get_objects"}
UNREADABLE = (SyntaxError, ValueError, RecursionError)
"""Raised for a cell that has magics, or is not valid Python."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_HISTORY = re.compile(r"_i?\d+")


@dataclass(frozen=True)
class Names:
    """The module's names that a piece of code reads, and those that it binds."""

    needs: frozenset[str]
    binds: frozenset[str] = frozenset()


def needed_cells(
    cells: Sequence[CodeCell], given: Collection[str], called: Collection[str] = ()
) -> tuple[CodeCell, ...]:
    """Return the cells in their order; of those that are not needed, only the import statements.

    Args:
        cells: the code cells of a submission.
        given: the sources of the lesson's code cells that are neither answers nor tests.
        called: the names that the lesson's checks call; the lesson itself may define some of them.
    """
    student = [cell for cell in cells if cell.source and cell.source.strip() not in given]
    lesson = {
        cell.number: cell
        for cell in cells
        if cell.source.strip() in given and _can_be_left_out(cell.source)
    }
    try:
        if any(hides_names(cell.source) for cell in student):
            return tuple(cells)
        needed = _close(
            [Names(frozenset(called)), *(names_of(cell.source) for cell in student)], lesson
        )
        return tuple(
            replace(cell, source=imports_of(cell.source))
            if cell.number in lesson and cell.number not in needed
            else cell
            for cell in cells
        )
    except UNREADABLE:
        return tuple(cells)


def _close(student: list[Names], lesson: dict[int, CodeCell]) -> set[int]:
    """Return the numbers of the lesson's cells that the student's cells need, directly or not."""
    names_needed = frozenset().union(*(names.needs for names in student))
    of_lesson = {number: names_of(cell.source) for number, cell in lesson.items()}
    needed: set[int] = set()
    while True:
        more = {
            n for n, names in of_lesson.items() if n not in needed and names.binds & names_needed
        }
        if not more:
            return needed
        needed |= more
        names_needed = names_needed.union(*(of_lesson[number].needs for number in more))


def may_change(cells: Sequence[CodeCell], names: Collection[str]) -> bool:
    """Tell whether these cells bind or may change one of these names of the module.

    A statement at the top level such as `KVCache.append = mine` may change whatever it mentions. Code
    that hides names may change any.
    """
    return any(_may_change(cell.source, frozenset(names)) for cell in cells if cell.source)


def _may_change(source: str, names: frozenset[str]) -> bool:
    try:
        changed = set(names_of(source).binds)
        for statement in parse(source).body:
            if not isinstance(statement, DEFINITIONS):
                changed |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        return bool(changed & names) or hides_names(source)
    except UNREADABLE:
        return True


def reach(cells: Sequence[CodeCell], names: Collection[str]) -> frozenset[str]:
    """Return these names and those that they depend on, in the cells that can be read."""
    of_cells = list(_names_in(cells))
    reached = frozenset(names)
    while more := [cell for cell in of_cells if cell.binds & reached and cell.needs - reached]:
        reached = reached.union(*(cell.needs for cell in more))
    return reached


def _names_in(cells: Sequence[CodeCell]) -> Iterator[Names]:
    for cell in cells:
        with suppress(*UNREADABLE):
            yield names_of(cell.source)


@lru_cache(maxsize=1000)
def names_of(source: str) -> Names:
    """Return the module's names that a cell reads and binds.

    Raises:
        SyntaxError: it is not valid Python.
    """
    needs, binds = set(), set()
    imported = {name for node in _imports(source) for name in _bound_by(node)}
    for table in _tables(symtable.symtable(source, "cell", "exec")):
        at_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if at_top or symbol.is_global():
                if symbol.is_referenced():
                    needs.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_namespace():
                    binds.add(symbol.get_name())
    return Names(frozenset(needs), frozenset(binds - imported))


def imports_of(source: str) -> str:
    """Return the import statements at the top of a cell, without the rest."""
    return "\n".join(map(ast.unparse, _imports(source)))


def _imports(source: str) -> Iterator[ast.Import | ast.ImportFrom]:
    body = parse(source).body
    return (node for node in body if isinstance(node, ast.Import | ast.ImportFrom))


def _bound_by(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    return (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def _can_be_left_out(source: str) -> bool:
    """Tell whether a cell has no magics, holds more than imports, and is not the set-up."""
    if source.startswith(SETUP):
        return False
    try:
        body = parse(source).body
    except SyntaxError:
        return False
    return not all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def hides_names(source: str) -> bool:
    """Tell whether code may read or bind names that it does not mention.

    Raises:
        SyntaxError: it is not valid Python.
    """
    return any(map(_hides, ast.walk(parse(source))))


def _hides(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return name in HIDING or _HISTORY.fullmatch(name) is not None
        case ast.Attribute(attr=name):
            return name in HIDING_ATTRIBUTES
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any(alias.name in ("*", "__main__") for alias in names)
    return False
