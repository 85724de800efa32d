"""Extract a notebook's answers, with what they need, as one piece of code."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from course.files.notebooks import nbgrader_of, read_cells


def student_code(path: Path) -> str:
    """Return the cells that students fill and those tagged `export`, in their order. They come with the
    imports, functions, classes and variables of other cells that they need.

    Cells that are not valid Python are left out.

    Raises:
        ValueError: the notebook cannot be read.
    """
    parts = [part for cell in read_cells(path) for part in _statements(cell)]
    included = {number for number, (_, answers) in enumerate(parts) if answers}
    while True:
        needed = set().union(*(_names(parts[number][0], ast.Load) for number in included))
        more = {
            number
            for number, (node, _) in enumerate(parts)
            if number not in included and _binds(node) & needed
        }
        if not more:
            break
        included |= more
    return "\n\n\n".join(ast.unparse(parts[number][0]) for number in sorted(included))


def _statements(cell: dict[str, Any]) -> list[tuple[ast.stmt, bool]]:
    """List the statements at the top level of a cell, each with whether it belongs to the answers."""
    noted = nbgrader_of(cell)
    tags = cell["metadata"].get("tags") or []
    if cell.get("cell_type") != "code" or noted.get("grade") or "setup" in tags:
        return []
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        body = ast.parse(TransformerManager().transform_cell(cell["source"])).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    answers = bool(noted.get("solution")) or "export" in tags
    return [(node, answers) for node in body]


def _names(node: ast.AST, context: type) -> set[str]:
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, context)
    }


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a definition, an import or an assignment binds; none of other statements."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return _names(node, ast.Store)
    return set()
