"""Compare replies by what decides.

Two answers with the same wrong numbers make the same mistake, however many tensors their lines write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autograder.diagnosis.comparison import same_reply
from autograder.run_record import Reply
from course.checks.check import Challenge, Check
from course.checks.relations.fields import Fields, fields_read, reduced
from course.checks.relations.pairs import pairs_of

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
            fields, _ = fields_read(self._check, self._challenge, reply.get("evidence"))
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
