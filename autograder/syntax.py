"""Parse Python in a process of several threads."""

from __future__ import annotations

import ast
import contextlib
import threading

_ONE_AT_A_TIME = threading.Lock()
TRIES = 20
"""How often a tree is built that other threads disturb."""


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a source, as `ast.parse` does.

    Two threads that build trees at once can end with "AST constructor recursion depth mismatch":
    CPython 3.11 keeps the depth where all threads share it (python/cpython#106905). So one of ours builds
    at a time. Where a library builds in a thread of its own, as `inspect.signature` does for functions
    written in C, the tree is built again.

    Raises:
        SyntaxError, ValueError, RecursionError: it is no Python, or too deep.
    """
    with _ONE_AT_A_TIME:
        for _ in range(TRIES - 1):
            with contextlib.suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)
