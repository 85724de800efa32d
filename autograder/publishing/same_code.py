"""Compare functions by what they do, not by how they look: without names of their own, words, blanks,
comments and annotations."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

Form = str
"""A function's syntax tree in which nothing is left that could be renamed."""
SMALLEST = 25
"""Nodes of a tree; smaller functions are alike by chance."""


def forms_in(tree: ast.Module) -> Iterator[tuple[str, Form]]:
    """Find the functions and methods of a module, with their forms; small ones are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            plain = _plain(node)
            if sum(1 for _ in ast.walk(plain)) >= SMALLEST:
                yield node.name, ast.dump(plain)


def _plain(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Module:
    """Copy a function's body, without docstring and annotations, its own names numbered."""
    whole = copy.deepcopy(function)
    body = whole.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    local_names = {argument.arg for argument in _arguments(whole)}
    local_names |= {
        n.id for n in ast.walk(whole) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    numbers: dict[str, str] = {}
    module = ast.Module(body, [])
    return _Renamed(local_names, numbers).visit(module)


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]


class _Renamed(ast.NodeTransformer):
    """Number a function's own names in the order in which they are met."""

    def __init__(self, local_names: set[str], numbers: dict[str, str]) -> None:
        self._local_names, self._numbers = local_names, numbers

    def _number(self, name: str) -> str:
        return self._numbers.setdefault(name, f"_{len(self._numbers)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(
            self._number(node.id) if node.id in self._local_names else node.id, node.ctx
        )

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._number(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value, lineno=node.lineno))
