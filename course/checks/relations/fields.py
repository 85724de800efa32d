"""Find out which fields of evidence decide, by watching the verdict read them.

A verdict that passes has looked at all that can decide; one that fails has stopped at what did.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, complete

Fields = frozenset[str]
"""Paths of fields: "calls*.out" is `out` of every item of the list `calls`."""


def reduced(evidence: Any, fields: Fields | None, path: str = "") -> Any:
    """Leave out of evidence, which may be anything, all that decides nothing.

    Args:
        fields: those that decide; None where that is not known, and all may.
    """
    if fields is None:
        return evidence
    if type(evidence) is dict:
        below = {name: f"{path}.{name}" for name in evidence}
        kept = [n for n, p in below.items() if any(field.startswith(p) for field in fields)]
        return {name: reduced(evidence[name], fields, below[name]) for name in kept}
    if _is_split(evidence):
        return [reduced(item, fields, f"{path}*") for item in evidence]
    return evidence


def fields_read(
    check: Check, challenge: Challenge, evidence: Evidence
) -> tuple[Fields | None, Verdict | None]:
    """List the fields of evidence that the verdict reads, and return the verdict; both are None where
    that stops."""
    read: set[str] = set()
    given = {"truth": check.truth, "tolerance": check.tolerance}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        if not complete(evidence, check.evidence(challenge)):
            return None, None
        with np.errstate(all="ignore"):
            verdict = check.verdict(challenge, _watched(evidence, "", read), **given)
    except Exception:  # a verdict that wants plain types, or another form
        return None, None
    return frozenset(read), verdict


class _WatchedDict(dict):
    """A dict that notes which of its values were looked at."""

    def __init__(self, values: dict, path: str, read: set[str]) -> None:
        super().__init__(values)
        self._path, self._read = path, read

    def __getitem__(self, name: Any) -> Any:
        return _watched(super().__getitem__(name), f"{self._path}.{name}", self._read)

    def __iter__(self) -> Iterator[Any]:
        """A dict that has its own is copied item by item, through `__getitem__`: by {**values}, too."""
        return super().__iter__()

    def keys(self) -> list[Any]:
        return list(super().keys())

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    def values(self) -> list[Any]:
        return [self[name] for name in self.keys()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(name, self[name]) for name in self.keys()]

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    __hash__ = None


class _WatchedList(list):
    """A list that notes which of its items were looked at."""

    def __init__(self, values: list, path: str, read: set[str]) -> None:
        super().__init__(values)
        self._path, self._read = path, read

    def __getitem__(self, place: Any) -> Any:
        item = super().__getitem__(place)
        path = self._path if isinstance(place, slice) else f"{self._path}*"
        return _watched(item, path, self._read)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None


def _watched(value: Any, path: str, read: set[str]) -> Any:
    if type(value) is dict:
        return _WatchedDict(value, path, read)
    if _is_split(value):
        return _WatchedList(value, path, read)
    read.add(path)
    return copy(value) if type(value) in (list, tuple) else value


def _is_split(value: Any) -> bool:
    """Tell whether a list has fields of its own; one of plain numbers and texts is one field."""
    return type(value) in (list, tuple) and any(_has_fields(item) for item in value)


def _has_fields(item: Any) -> bool:
    return type(item) in (dict, np.ndarray) or (
        type(item) in (list, tuple) and any(map(_has_fields, item))
    )
