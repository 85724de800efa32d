"""The calls behind a list of results: their sizes by name, and the right results of other calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Path = tuple[Any, ...]
"""Keys and places that lead to a size in a case."""
Answer = Callable[[Any], Mapping[str, np.ndarray]]
"""What the right function makes of a single case: the fields of the evidence."""
ChangedCase = tuple[str, int, str]
"""A field of the evidence, the number of a case, and the words of a change."""
ARRAYS = {"q": "BHTD", "k": "BGSD"}
"""The letters of the axes of queries and keys."""
DERIVED = {"head_dim": ("d_model", "n_heads")}
"""Sizes of a config that are the quotient of two others."""


@dataclass(frozen=True)
class Size:
    """A whole number in a case.

    Attributes:
        name: of the argument, or of the field of a config.
        path: where in the case it stands; () of an axis.
        value: what it is.
    """

    name: str
    path: Path
    value: int


@dataclass(frozen=True)
class Calls:
    """The calls of a challenge.

    Attributes:
        challenge: what was asked.
        names: the names of the arguments of each function that is called, in its order.
        answer: what the right function makes of another case; None where nobody can tell.
        known: its answers to changed cases.
    """

    challenge: Mapping[str, Any]
    names: Mapping[str, Sequence[str]]
    answer: Answer | None = None
    known: dict[ChangedCase, np.ndarray | None] = field(default_factory=dict)

    def right_for(self, name: ChangedCase, changed: Callable[[], Any]) -> np.ndarray | None:
        """Return the right result of a field for a changed case; None where that is refused.

        Args:
            changed: makes the changed case.
        """
        if name not in self.known:
            try:
                self.known[name] = self.answer(changed())[name[0]]
            except Exception:  # inputs or sizes that are refused
                self.known[name] = None
        return self.known[name]

    def cases_of(self, field: str) -> Sequence[Any]:
        """Return the cases of a field of the evidence; () where they are not told apart."""
        name = field.lstrip(".").partition("*")[0].partition(".")[0]
        for key in (name, "cases", "sizes"):
            if isinstance(self.challenge, Mapping) and isinstance(self.challenge.get(key), list):
                return self.challenge[key]
        return ()

    def values_of(self, case: Any) -> dict[str, int]:
        """Return the sizes in a case by name, and those that follow from them."""
        values = {size.name: size.value for size in self.sizes_of(case)}
        for name, (a, b) in DERIVED.items():
            if a in values and values.get(b) and name not in values:
                values[name] = values[a] // values[b]
        return values

    def sizes_of(self, case: Any) -> list[Size]:
        """List the sizes in a case: whole numbers among its arguments, and what a config says."""
        return list(self._sizes(case, ()))

    def _sizes(self, case: Any, path: Path) -> Iterator[Size]:
        if not isinstance(case, Mapping):
            return
        for key, value in case.items():
            below = (*path, key)
            if key == "arguments":
                yield from self._listed(self.names.get(case["function"], ()), value, below)
            elif key == "call":  # what follows the config
                yield from self._listed(next(iter(self.names.values()), ())[1:], value, below)
            elif isinstance(value, Mapping):
                yield from self._sizes(value, below)
            elif isinstance(value, np.ndarray):
                letters = zip(ARRAYS.get(key, ""), value.shape, strict=False)
                yield from (Size(letter, (), size) for letter, size in letters)
            elif _is_whole(value):
                yield Size(key, below, int(value))

    def inputs_of(self, case: Any) -> Iterator[tuple[str, tuple[Path, Any]]]:
        """List the arrays, masks and floating-point numbers in a case by name, with their places."""
        if isinstance(case, Mapping) and "arguments" in case:
            names = self.names.get(case["function"], ())
            listed = enumerate(zip(names, case["arguments"], strict=False))
            yield from ((name, (("arguments", i), value)) for i, (name, value) in listed)
        elif isinstance(case, Mapping):
            for key, value in case.items():
                if isinstance(value, Mapping):
                    below = self.inputs_of(value)
                    yield from ((name, ((key, *path), inner)) for name, (path, inner) in below)
                else:
                    yield key, ((key,), value)
        elif isinstance(case, list | tuple):
            names = next(iter(self.names.values()), ())
            yield from ((n, ((i,), v)) for i, (n, v) in enumerate(zip(names, case, strict=False)))

    def _listed(self, names: Sequence[str], values: Sequence[Any], path: Path) -> Iterator[Size]:
        for place, (name, value) in enumerate(zip(names, values, strict=False)):
            if isinstance(value, Mapping):
                yield from self._sizes(value, (*path, place))
            elif _is_whole(value):
                yield Size(name, (*path, place), int(value))


def with_values(case: Any, new: Mapping[Path, Any]) -> Any:
    """Copy a case with other values at some places."""
    case = deepcopy(case)
    for path, value in new.items():
        *above, last = path
        holder = case
        for key in above:
            if isinstance(holder[key], tuple):
                holder[key] = list(holder[key])
            holder = holder[key]
        holder[last] = value
    return case


def _is_whole(value: Any) -> bool:
    return type(value) is int or isinstance(value, np.integer)
