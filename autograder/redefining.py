"""Tell which cells may give a function another definition.

A student tries things out between two tests. A cell that calls a class, prints a function or makes a
random tensor changes neither; one that defines it anew does, or `KVCache.append = mine`, or a table that
the function reads and the cell clears.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from autograder.assignment import CodeCell
from autograder.needed_cells import DEFINITIONS, UNREADABLE, hides_names, names_of
from autograder.syntax import parse

LOOKING = {"print", "display", "help", "repr", "str", "type", "len", "isinstance", "callable"}
"""Python's functions that change nothing of what they are given."""
OURS = "course"
"""What is imported from here changes nothing of the functions that it is given."""
TIMED = re.compile(
    r"^([ \t]*)%%?(?:time|timeit|capture)\b(?:[ \t]+-\w+(?:[ \t]+\d+)?)*[ \t]*", re.MULTILINE
)
"""A magic that runs the code behind it."""
APART = re.compile(
    r"^([ \t]*)(?:!|%(?:matplotlib|config|pip|conda|load_ext|autosave|precision|whos?|pwd|ls)\b).*$",
    re.MULTILINE,
)
"""Lines for a shell, and magics that touch no name."""


class Redefining:
    """Finds the cells that may redefine a name.

    Args:
        cells: the code cells of a submission. Of their names, those that only imports, `def` and `class`
            bind may be called or looked at by a cell that changes nothing of them. Whatever else a cell
            mentions, it may change.
    """

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        self._imported: set[str] = set()
        self._looking = set(LOOKING)
        code: set[str] = set()
        assigned: set[str] = set()
        for statement in (one for cell in cells for one in _statements(cell.source)):
            match statement:
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    new = {alias.asname or alias.name.partition(".")[0] for alias in names}
                    module = getattr(statement, "module", None) or names[0].name
                    self._imported |= new
                    self._looking |= new if module.partition(".")[0] == OURS else set()
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    code.add(name)
                case _:
                    named = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
                    assigned |= {node.id for node in named if not isinstance(node.ctx, ast.Load)}
        self._imported -= assigned
        self._looking -= assigned
        self._code = (code | self._imported) - assigned

    def may_redefine(self, source: str, names: Collection[str]) -> bool:
        """Tell whether a cell may give one of these names another definition."""
        source = TIMED.sub(r"\1", APART.sub(r"\1pass", source))
        try:
            changed = set(names_of(source).binds)
            for statement in parse(source).body:
                if not isinstance(statement, DEFINITIONS):
                    changed |= self._changed(statement)
            return not changed.isdisjoint(names) or hides_names(source)
        except UNREADABLE:
            return True

    def _changed(self, statement: ast.stmt) -> set[str]:
        """Return the names that a statement mentions and may change."""
        mentioned = {n for n in ast.walk(statement) if isinstance(n, ast.Name)}
        used = {n for n in self._only_used(statement) if isinstance(n, ast.Name)}
        changed = {name.id for name in mentioned if name not in used or name.id not in self._code}
        return changed | set(_written_into(statement))

    def _only_used(self, statement: ast.stmt) -> Iterator[ast.AST]:
        """Return what a statement calls, or looks at."""
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=function, args=given, keywords=named):
                    yield function
                    if _root(function) in self._looking:
                        yield from (*given, *(keyword.value for keyword in named))
                case ast.Attribute(value=ast.Name(id=name) as module) if name in self._imported:
                    yield module
                case ast.AnnAssign(annotation=annotation):
                    yield from ast.walk(annotation)


def _written_into(statement: ast.stmt) -> Iterator[str]:
    """Return the names whose attributes or items a statement sets or deletes."""
    for node in ast.walk(statement):
        match node:
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                yield _root(node)


def _root(node: ast.expr) -> str:
    """Return the name at the beginning of a path such as torch.nn.functional; "" where there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _statements(source: str) -> Iterator[ast.stmt]:
    with suppress(*UNREADABLE):
        yield from parse(source).body
