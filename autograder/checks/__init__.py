"""The hidden checks, one module a lesson, named "<lesson module>.<check>" in the graded cells."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from course.checks.check import Check, CheckFailed


def find(name: str) -> Check:
    """The hidden check of that name, such as "kv_cache.mask_is_rectangular".

    Raises:
        ValueError: no such lesson or check; the message lists the checks of that lesson.
    """
    lesson, _, check = name.partition(".")
    try:
        checks = importlib.import_module(f"autograder.checks.{lesson}").CHECKS
    except ModuleNotFoundError as error:
        raise ValueError(f"no hidden checks for a lesson {lesson!r}") from error
    if check not in checks:
        raise ValueError(f"no hidden check {check!r} in {lesson}; there are {sorted(checks)}")
    return checks[check]


def grade(name: str, functions: Mapping[str, Any], seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    """Run a hidden check on a notebook's functions, in this process.

    Raises:
        CheckFailed: the first seed at which the property broke, with the check's message.
    """
    check = find(name)
    for seed in seeds:
        verdict = check.judge(functions, seed)
        if verdict.score < 1:
            raise CheckFailed(verdict.message)
