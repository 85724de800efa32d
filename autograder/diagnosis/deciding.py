"""Find out which fields of a reply's evidence decide, by watching the verdict read it.

A verdict that passes has looked at all that can decide; one that fails has stopped at what did. Two
answers with the same wrong numbers make the same mistake, however many tensors their lines write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import numpy as np

from autograder.diagnosis.comparison import same_reply
from autograder.run_record import Reply
from course.checks.check import Challenge, Check, Verdict, complete
from course.checks.relations.pairs import pairs_of

Fields = frozenset[str]
"""Paths of fields: "calls*.out" is `out` of every item of the list `calls`."""
Canonical = Callable[[Challenge, Any], Any]
"""Writes evidence of a challenge in one form."""
MANY = 8
"""Different wrong numbers that no two mistakes share by chance."""


class Deciding:
    """Compares replies to one challenge by the fields that decide: those that the verdict read.

    Args:
        right: the reference's reply to the challenge.
        canonical: writes evidence in one form, where the contract leaves something open, such as which
            block is handed out first; None where it leaves nothing open.
    """

    def __init__(
        self, check: Check, challenge: Challenge, right: Reply, canonical: Canonical | None = None
    ) -> None:
        self._check, self._challenge = check, challenge
        self._right, self._canonical = right, canonical
        self._fields: dict[int, tuple[Reply, Fields | None]] = {}
        self._parts: dict[tuple[int, Fields], tuple[Reply, Reply]] = {}

    def are_same(self, known: Reply, reply: object) -> bool:
        """Tell whether a known reply equals another in all fields that decided about the other, which may
        hold anything."""
        if type(reply) is not dict or any(r.get("error") for r in (known, reply)):
            return False
        fields = self._fields_of(reply)
        return bool(fields) and same_reply(self._part(known, fields), self._part(reply, fields))

    def is_telling(self, reply: Reply) -> bool:
        """Tell whether too many numbers of a reply are wrong for two mistakes to give the same."""
        if reply.get("error") or self._right.get("error") or not (fields := self._fields_of(reply)):
            return False
        if self._canonical:
            return True
        both = (self._part(one, fields)["evidence"] for one in (self._right, reply))
        # Arrays are results. Plain numbers count, and counts are the same for many mistakes.
        arrays = [
            p for p in pairs_of(*both) if isinstance(p.expected, np.ndarray) and not p.is_list
        ]
        alike = [p for p in arrays if p.expected.shape == p.got.shape]
        return sum(len(np.unique(p.got[p.wrong])) for p in alike) >= MANY

    def _fields_of(self, reply: Reply) -> Fields | None:
        """List the fields that decide about a reply, which is kept so that its id stays its own."""
        if id(reply) not in self._fields:
            fields, _ = fields_read(self._check, self._challenge, reply)
            self._fields[id(reply)] = reply, fields
        return self._fields[id(reply)][1]

    def _part(self, reply: Reply, fields: Fields) -> Reply:
        """Leave out of a reply all but these fields."""
        key = id(reply), fields
        if key not in self._parts:
            evidence = reply["evidence"]
            if self._canonical:
                evidence = self._canonical(self._challenge, evidence)
            else:
                evidence = reduced(evidence, fields)
            self._parts[key] = reply, {**reply, "evidence": evidence}
        return self._parts[key][1]


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
    check: Check, challenge: Challenge, reply: Reply
) -> tuple[Fields | None, Verdict | None]:
    """List the fields of a reply that its verdict reads, and return the verdict; both are None where that
    stops."""
    read: set[str] = set()
    given = {"truth": check.truth, "tolerance": check.tolerance}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        if not complete(reply["evidence"], check.evidence(challenge)):
            return None, None
        with np.errstate(all="ignore"):
            verdict = check.verdict(challenge, _watched(reply["evidence"], "", read), **given)
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
