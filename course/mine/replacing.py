"""Put a student's functions in the place of ours in the modules of `course.minigpt`, and back."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

_OURS: dict[tuple[str, str], Any] = {}
"""The functions that were replaced, by module and name; `_ABSENT` where ours are not given."""
_ABSENT = object()


def run_code(module: str, code: str) -> dict[str, Any]:
    """Run a student's code in a new namespace and return that. Tracebacks show the code's lines."""
    name = f"<your {module}.ipynb>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": f"course.minigpt.{module}"}
    exec(compile(code, name, "exec"), space)
    return space


def ours_are_given(module: str) -> bool:
    """Tell whether the course holds the answers of a lesson."""
    package = importlib.util.find_spec("course.minigpt")
    return package is not None and any(
        importlib.machinery.PathFinder.find_spec(f"course.minigpt.{module}", [place])
        for place in package.submodule_search_locations or ()
    )


def put_in(module: str, functions: Mapping[str, Any]) -> None:
    """Make `from course.minigpt.<module> import <name>` return these functions."""
    target = _module(module)
    for name, function in functions.items():
        _OURS.setdefault((module, name), vars(target).get(name, _ABSENT))
        setattr(target, name, function)


def take_out(modules: Iterable[str]) -> None:
    """Put ours back in these modules."""
    restored = set(modules)
    for (module, name), ours in list(_OURS.items()):
        if module not in restored:
            continue
        target = _module(module)
        if ours is _ABSENT:
            vars(target).pop(name, None)
        else:
            setattr(target, name, ours)
        del _OURS[module, name]


def say_why_absent(module: str, folder: str, reasons: Mapping[str, str]) -> None:
    """Make the import of a name that neither we nor the student provide say why it is missing.

    Args:
        module: the lesson whose functions are missing.
        folder: its folder.
        reasons: the reason for each name; that of "" holds for every other name.
    """
    target = _module(module)

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        why = reasons.get(name) or reasons.get("") or "yours has none"
        raise ImportError(
            f"There is no {name}: ours is given when lesson {folder} closes, and {why}. "
            f"Finish it in {folder}, then restart this notebook."
        )

    target.__dict__["__getattr__"] = missing


def _module(module: str) -> ModuleType:
    """Import ours, or make a module where ours are not given."""
    name = f"course.minigpt.{module}"
    if name in sys.modules:
        return sys.modules[name]
    if ours_are_given(module):
        return importlib.import_module(name)
    sys.modules[name] = made = ModuleType(name, "Your functions; ours are not given yet.")
    return made
