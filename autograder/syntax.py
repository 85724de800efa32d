"""Parse Python in a process of several threads."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a source, as `ast.parse` does.

    Two threads that build trees at once can end with "AST constructor recursion depth mismatch":
    CPython 3.11 keeps the depth where all threads share it (python/cpython#106905).

    Raises:
        SyntaxError, ValueError, RecursionError: it is no Python, or too deep.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
