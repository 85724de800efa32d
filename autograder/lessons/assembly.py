"""Put wrong answers into a lesson's notebook, and run its answer cells as a student's are run.

What is exchanged is put into the lesson's own solution cells, so that the lesson's other functions call
it. A wrong answer that is a function takes the place of the reference answer; one that builds on it (a
subclass, or a function that calls `right.<name>`) stands behind it in the same cell. What a museum's
functions need of their module, imports and helpers, comes along.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from autograder.assignment import source_of
from autograder.lessons import SOLUTIONS, lesson_folders
from autograder.lessons.exhibits import Answer, Edits
from autograder.syntax import parse

RIGHT = "right"
"""The name by which a museum's function calls the reference answer that it replaces."""


def assemble(lesson: str, answer: Answer) -> dict[str, Any]:
    """Run a lesson's answer cells with some answers exchanged; return the names they define.

    Args:
        lesson: the module's name, such as "kv_cache".
        answer: what differs from the reference, by name; {} for the solved notebook.
    """
    return run_cells(lesson, answer_cells(lesson, answer))


def run_cells(lesson: str, sources: Iterable[str]) -> dict[str, Any]:
    """Run these sources as a lesson's answer cells; return the names they define."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(sources):
        exec(_compiled(source, f"<{lesson}, answer cell {number}>"), names)
    return names


def answer_cells(lesson: str, answer: Answer) -> list[str]:
    """Return the sources of the exported and the solution cells, with `answer` put in.

    Raises:
        ValueError: no cell defines a name of `answer`, or an edit's anchor is not there exactly once.
    """
    left, sources = set(answer), []
    for source in _cells(lesson).values():
        for name in sorted(_defined(source) & left):
            source = _put_in(lesson, source, name, answer[name])
            left.discard(name)
        sources.append(source)
    if left:
        raise ValueError(f"no answer cell of {lesson} defines {', '.join(sorted(left))}")
    return sources


def by_grade_id(lesson: str, answer: Answer) -> dict[str, str]:
    """Return the sources of the solution cells by grade_id, with `answer` put in."""
    sources = dict(zip(_cells(lesson), answer_cells(lesson, answer), strict=True))
    return {name: source for name, source in sources.items() if name in _solutions(lesson)}


@cache
def _cells(lesson: str) -> dict[str, str]:
    """Read the sources of the solved notebook's answer cells by cell id: those that students fill, and
    those that are exported. Without the markers around answers."""
    markers = ("### BEGIN SOLUTION", "### END SOLUTION")
    found = {}
    for cell in _notebook(lesson)["cells"]:
        if _is_solution(cell) or "export" in cell["metadata"].get("tags", []):
            lines = source_of(cell).splitlines()
            found[cell["id"]] = "\n".join(line for line in lines if line.strip() not in markers)
    return found


def _solutions(lesson: str) -> set[str]:
    """Return the ids of the cells that students fill, which are their grade_ids."""
    return {cell["id"] for cell in _notebook(lesson)["cells"] if _is_solution(cell)}


def _is_solution(cell: Mapping[str, Any]) -> bool:
    return cell["metadata"].get("nbgrader", {}).get("solution", False)


@cache
def _notebook(lesson: str) -> dict[str, Any]:
    path = SOLUTIONS / lesson_folders()[lesson] / f"{lesson}.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def _compiled(source: str, name: str) -> Any:
    return compile(source, name, "exec", dont_inherit=True)


def _put_in(lesson: str, source: str, name: str, exhibit: Any) -> str:
    """Exchange one definition in the source of a cell."""
    first, last = _lines_of(source, name)
    lines = source.splitlines()
    if isinstance(exhibit, Edits):
        changed = _edited("\n".join(lines[first:last]), exhibit, f"{lesson}.{name}")
        return "\n".join([*lines[:first], changed, *lines[last:]])
    definition, helpers = _definition(exhibit, name, _names_of(lesson))
    if not _builds_on_reference(definition, helpers, name):
        before = [f"{part}\n\n" for part in helpers]
        return "\n".join([*lines[:first], *before, definition, *lines[last:]])
    kept = f"from types import SimpleNamespace\n\n{RIGHT} = SimpleNamespace({name}={name})"
    return "\n\n\n".join([source, kept, *helpers, definition])


def _edited(source: str, edits: Edits, where: str) -> str:
    for old, new in edits.pairs:
        if (count := source.count(old)) != 1:
            raise ValueError(
                f"{where}: {old!r} must stand in the reference once, not {count} times"
            )
        source = source.replace(old, new)
    return source


def _builds_on_reference(definition: str, helpers: list[str], name: str) -> bool:
    bases = [ast.unparse(base) for base in getattr(parse(definition).body[0], "bases", [])]
    used = set(bases).union(*map(_used, helpers))
    return name in used or RIGHT in used | _used(definition)


def _definition(exhibit: Any, name: str, known: set[str]) -> tuple[str, list[str]]:
    """The source of a museum's function or class under the lesson's name; and what it needs of its
    module that no notebook has: imports and helpers, in their order."""
    module = sys.modules[exhibit.__module__]
    tree, text = _module(module.__name__)
    own = _top_level(tree)[exhibit.__name__]
    needed = _needed(_top_level(tree), own, text, known | {name, RIGHT})
    parts = [_without_decorators(node, text) for node in tree.body if node in needed]
    return _renamed(_without_decorators(own, text), exhibit.__name__, name), parts


def _needed(
    places: Mapping[str, ast.stmt], of: ast.stmt, text: str, known: set[str]
) -> set[ast.stmt]:
    """Find the statements of a module that define names which `of` uses, directly or not."""
    needed: set[ast.stmt] = set()
    left = [of]
    while left:
        for name in _used(_without_decorators(left.pop(), text)) - known:
            node = places.get(name)
            if node is not None and node is not of and node not in needed:
                needed.add(node)
                left.append(node)
    return needed


def _without_decorators(node: ast.stmt, text: str) -> str:
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


def _renamed(definition: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, definition)


@cache
def _module(name: str) -> tuple[ast.Module, str]:
    text = inspect.getsource(sys.modules[name])
    return parse(text), text


def _top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    """Index the statements at the top of a module by the names that they define."""
    return {name: node for node in tree.body for name in _names_defined_by(node)}


def _names_defined_by(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name))


@cache
def _used(source: str) -> set[str]:
    """Return the names that a piece of code reads."""
    names = (node for node in ast.walk(parse(source)) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


@cache
def _defined(source: str) -> set[str]:
    tree = parse(source)
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


@cache
def _lines_of(source: str, name: str) -> tuple[int, int]:
    """Find the lines of a definition in a cell, decorators included, as bounds of a slice."""
    nodes = [n for n in parse(source).body if getattr(n, "name", None) == name]
    first = min([nodes[0].lineno, *(d.lineno for d in nodes[0].decorator_list)])
    return first - 1, nodes[0].end_lineno


@cache
def _names_of(lesson: str) -> set[str]:
    """Return the names that a solved notebook defines."""
    return set(assemble(lesson, {}))
