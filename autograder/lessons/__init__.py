"""Find what grading a lesson takes: hidden checks, probes and museum, one folder a lesson.

The lesson in the folder "03-kv-cache" has the module name "kv_cache", here and in `course`. Its hidden
checks are named "kv_cache.<check>", and each check is named as the graded cell that asks for it.
"""

from __future__ import annotations

import importlib
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from course.checks.check import Check, CheckFailed

FOLDER = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")
"""What a lesson's folder is called."""
SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"


def lesson_folders(solutions: Path = SOLUTIONS) -> dict[str, str]:
    """List the lessons: the folder of each module, such as "kv_cache": "03-kv-cache", in order."""
    names = {path.parent.name for path in solutions.glob("*/*.py")}
    return {module_of(name): name for name in sorted(names) if FOLDER.fullmatch(name)}


def module_of(folder: str) -> str:
    """Return a folder's module name, "kv_cache" of "03-kv-cache"."""
    return folder[3:].replace("-", "_")


def lesson_named(name: str) -> str:
    """Return the module of a lesson that a command names: `03`, `03-kv-cache` or `kv_cache`.

    Raises:
        ArgumentTypeError: there is no such lesson.
    """
    folders = lesson_folders()
    for module, folder in folders.items():
        if name in (module, folder, folder[:2]):
            return module
    raise ArgumentTypeError(f"no lesson {name!r}; there are {', '.join(folders.values())}")


def hidden_checks(lesson: str) -> dict[str, Check]:
    """Return the hidden checks of a lesson's module by name, in the order of the lesson.

    Raises:
        ValueError: there is no such lesson.
    """
    try:
        return importlib.import_module(f"autograder.lessons.{lesson}.hidden").CHECKS
    except ModuleNotFoundError as error:
        raise ValueError(f"no hidden checks for a lesson {lesson!r}") from error


def find(name: str) -> Check:
    """Find a hidden check by name, such as "kv_cache.mask_is_rectangular".

    Raises:
        ValueError: no such lesson or check; the message lists the checks of that lesson.
    """
    lesson, _, check = name.partition(".")
    checks = hidden_checks(lesson)
    if check not in checks:
        raise ValueError(f"no hidden check {check!r} in {lesson}; there are {sorted(checks)}")
    return checks[check]


def canonical_form(lesson: str, check: str) -> Callable[[Any, Any], Any] | None:
    """Return what writes a check's evidence in one form, whatever the contract leaves open, such as the
    numbers of blocks; None where a lesson needs no such function.

    Raises:
        ValueError: there is no such lesson.
    """
    if not hidden_checks(lesson) or find_spec(f"autograder.lessons.{lesson}.canonical") is None:
        return None
    return importlib.import_module(f"autograder.lessons.{lesson}.canonical").FORMS.get(check)


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
