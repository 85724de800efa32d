"""Find which of a lesson's functions a call stands on."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from types import CodeType
from typing import TypeVar

from autograder.lessons.exhibits import Bug, Variant

Exhibit = TypeVar("Exhibit", Bug, Variant)


def reached_by(lesson: str, needs: tuple[str, ...], exhibits: Iterable[Exhibit]) -> list[Exhibit]:
    """List those of a lesson's exhibits that differ from its reference in what a call of these functions
    may look up."""
    reached = within_reach(lesson, needs)
    return [exhibit for exhibit in exhibits if set(exhibit.answer) & reached]


@cache
def within_reach(lesson: str, needs: tuple[str, ...]) -> frozenset[str]:
    """Find the names of the lesson that a call of these functions may look up."""
    reference = vars(importlib.import_module(f"course.minigpt.{lesson}"))
    reached, left = set(), list(needs)
    while left:
        name = left.pop()
        value = reference.get(name)
        if name in reached or getattr(value, "__module__", "") != f"course.minigpt.{lesson}":
            continue
        reached.add(name)
        methods = vars(value).values() if isinstance(value, type) else [value]
        left += [n for f in methods if hasattr(f, "__code__") for n in names_in(f.__code__)]
    return frozenset(reached)


def names_in(code: CodeType) -> list[str]:
    """List the global names that a function uses, inner functions included."""
    inner = [
        name for part in code.co_consts if isinstance(part, CodeType) for name in names_in(part)
    ]
    return [*code.co_names, *inner]
