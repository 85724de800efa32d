"""What the museum holds: wrong answers, and correct ones written in another style.

An exhibit names only the functions that differ from the reference answer. `assemble` puts them into
the reference as a student's cells would, so that the reference's other functions call them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

FAMILIES = {
    "position": "at which position a token stands",
    "mask": "which tokens a token may see",
    "softmax": "how scores become weights",
    "head order": "which head reads what, and how heads are cut, merged and shared",
    "wiring": "which part goes into which, and which one is left out",
    "writes": "where a cache writes, and what it gives back",
    "state": "what a call leaves behind, and for whom",
    "capacity": "where the room ends",
    "cost": "work that is done for nothing",
    "feeding": "which tokens are fed to the model",
    "choice": "from which numbers a token is chosen",
    "sampling": "how a token is drawn",
    "off by one": "one too many, or one too few",
    "formula": "what belongs into a count, and what it is multiplied by",
    "timing": "when a clock is read, and what is waited for",
    "arguments": "which arguments are refused, and how",
    "rounding": "how a number becomes a code, and with which others it shares a step",
    "form": "shape and type of a result",
}
"""What mistakes are about: by this an instructor counts them, over a class and over the lessons."""


@dataclass(frozen=True)
class Bug:
    """A complete, plausible wrong answer.

    Attributes:
        name: in snake case, the mistake in a few words.
        story: how one comes to write it and what happens then, in one or two lines.
        check: the hidden check that must catch it, "<lesson>.<check>".
        family: one of FAMILIES.
        mistake: what a student who made it is told; completes "These are the numbers of …" and
            names the mistake, not the answer.
        answer: the functions or classes that differ, by name.
    """

    name: str
    story: str
    check: str
    family: str
    mistake: str
    answer: dict[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"{self.name}: no family {self.family!r}; there are {list(FAMILIES)}")


@dataclass(frozen=True)
class Variant:
    """A correct answer in another style; it must get full points at every check."""

    name: str
    answer: dict[str, Any] = field(repr=False)


def assemble(lesson: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The names of a solved notebook of that lesson, with `answer` in the place of its own.

    Args:
        lesson: the module's name, such as "kv_cache".
        answer: functions or classes by name; their other names are looked up in their own module
            first where the reference has none.
    """
    reference = vars(importlib.import_module(f"course.minigpt.{lesson}"))
    names = {**reference, **answer}
    for value in answer.values():
        names = {**vars(importlib.import_module(value.__module__)), **names}
    for name, value in list(names.items()):
        written_here = isinstance(value, FunctionType) and (
            name in answer or value.__module__ == f"course.minigpt.{lesson}"
        )
        if written_here:
            names[name] = _with_globals(value, names)
    return names


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The same function, looking its names up in `names`."""
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    return copy
