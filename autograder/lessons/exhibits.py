"""State known wrong answers, and right answers in another style.

    MUSEUM = Museum("kv_cache")

    bug, patch = MUSEUM.section("causal_mask", check="mask_is_rectangular")

    @bug("mask", "a mask that hides nothing")
    def mask_sees_all(n_new, n_visible, device="cpu"):
        \"\"\"In decode everything cached is visible, so no mask: wrong for a chunk.\"\"\"
        return torch.ones(n_new, n_visible, dtype=torch.bool, device=device)

    patch(
        "mask_one_too_far",
        "mask",
        "a mask that lets each token see one token ahead",
        "The diagonal is counted from 1.",
        ("n_visible - n_new", "n_visible - n_new + 1"),
    )

The first is written out, the second is the reference answer with a line changed.
`autograder.lessons.assembly` puts either into the lesson's own cells, as a student's notebook has
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import iter_modules
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

KINDS = {
    "arguments": "arguments stay as they were",
    "dtype": "dtype and device are kept",
    "layout": "inputs need not be contiguous",
    "batch": "any batch: one row, equal rows, rows that differ late",
    "sizes": "sizes 0, 1, just full, larger than any tempting constant",
    "results": "results are fresh and stay what they were",
    "instances": "two instances share nothing",
    "end": "a text goes on after `<end>`",
    "refusals": "a refusal comes at once and changes nothing",
    "cost": "work that the lesson promises is counted",
    "evidence": "what decides is computed or drawn by the judge",
}
"""The house rules of lesson 00, and what else holds in every lesson: each kind of mistake has wrong
answers in the museum of every lesson where it can be made (the table in docs/grading.md)."""


@dataclass(frozen=True)
class Edits:
    """Changes of the reference answer: pairs of what stands there, exactly once, and what replaces it."""

    pairs: tuple[tuple[str, str], ...]


Answer = Mapping[str, Any]
"""Functions, classes or `Edits`, by the name that they have in the lesson."""


@dataclass(frozen=True)
class Bug:
    """A complete, plausible wrong answer.

    Attributes:
        name: in snake case, the mistake in a few words.
        story: how one comes to write it and what happens then, in one or two lines.
        check: the hidden check that must catch it, "<lesson>.<check>".
        family: one of FAMILIES.
        mistake: what a student who made it is told; completes "These numbers come from …" and
            names the mistake, not the answer.
        answer: what differs from the reference.
        kind: one of KINDS, where the mistake breaks such a rule; else "".
    """

    name: str
    story: str
    check: str
    family: str
    mistake: str
    answer: Answer = field(repr=False)
    kind: str = ""

    def __post_init__(self) -> None:
        if self.kind and self.kind not in KINDS:
            raise ValueError(f"{self.name}: no kind {self.kind!r}; there are {list(KINDS)}")
        if self.family not in FAMILIES:
            raise ValueError(f"{self.name}: no family {self.family!r}; there are {list(FAMILIES)}")
        if not self.story:
            raise ValueError(f"{self.name}: a bug needs a story, as its docstring")


@dataclass(frozen=True)
class Variant:
    """A correct answer in another style; it must get full points at every check."""

    name: str
    answer: Answer = field(repr=False)


class Museum:
    """The known wrong answers to one lesson, in the order in which they are stated.

    Args:
        lesson: the module's name, such as "kv_cache".
    """

    def __init__(self, lesson: str) -> None:
        self.lesson = lesson
        self.bugs: list[Bug] = []

    def section(self, target: str, check: str) -> tuple[Callable[..., Any], Callable[..., None]]:
        """Begin the wrong answers to one function that one check must catch.

        Args:
            target: the name of the function or class in the lesson.
            check: the name of the hidden check, without the lesson.

        Returns:
            `bug(family, mistake, kind="", **also)`, a decorator for a function or class whose name is
            the bug's and whose docstring is its story; `also` are further functions that differ, by
            name. `patch(name, family, mistake, story, *edits, kind="")`, for edits of the reference
            answer.
        """

        def add(
            name: str, family: str, mistake: str, story: str, answer: Answer, kind: str
        ) -> None:
            if any(known.name == name for known in self.bugs):
                raise ValueError(f"{self.lesson}: two bugs are named {name!r}")
            story = " ".join(story.split())
            where = f"{self.lesson}.{check}"
            self.bugs.append(Bug(name, story, where, family, mistake, answer, kind))

        def bug(family: str, mistake: str, kind: str = "", **also: Any) -> Callable[[Any], Any]:
            def stated(definition: Any) -> Any:
                name = snake_case(definition.__name__)
                answer = {target: definition, **also}
                add(name, family, mistake, definition.__doc__ or "", answer, kind)
                return definition

            return stated

        def patch(
            name: str,
            family: str,
            mistake: str,
            story: str,
            *edits: tuple[str, str],
            kind: str = "",
        ) -> None:
            add(name, family, mistake, story, {target: Edits(edits)}, kind)

        return bug, patch


def snake_case(name: str) -> str:
    """ "counts_in_append" of "CountsInAppend"; a name in snake case stays."""
    parts = ["_" + c.lower() if c.isupper() else c for c in name]
    return "".join(parts).lstrip("_")


@cache
def bugs_of(lesson: str) -> list[Bug]:
    """Return the known wrong answers to a lesson, by its module's name: those that the museum's file
    states, or all files of its folder in the order of their names."""
    museum = importlib.import_module(f"autograder.lessons.{lesson}.museum")
    for file in iter_modules(getattr(museum, "__path__", [])):
        importlib.import_module(f"{museum.__name__}.{file.name}")
    return museum.MUSEUM.bugs


def variants_of(lesson: str) -> list[Variant]:
    """Return the right answers to a lesson in other styles."""
    return importlib.import_module(f"autograder.lessons.{lesson}.variants").VARIANTS
