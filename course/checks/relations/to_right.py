"""Say what is true of the evidence of a check, beside that of right answers to the same challenge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence
from course.checks.relations import relations_between
from course.checks.relations.calls import Calls
from course.checks.relations.fields import fields_read, reduced
from course.checks.relations.pairs import fields_of, pairs_of
from course.checks.relations.words import Relation
from course.checks.shrinking import lists_of_operations

Probe = Callable[[Challenge], Evidence]
"""Puts a challenge to right functions; an exception says that they stopped."""


def relations_to(
    right: Evidence, evidence: Any, check: Check, challenge: Challenge, calls: Calls
) -> list[Relation]:
    """List what is true of the numbers in evidence, which may be anything.

    Args:
        right: the evidence of right functions.
        calls: those of the challenge, see `calls_of`.
    """
    fields, verdict = fields_read(check, challenge, evidence)
    if verdict and verdict.score == 1:
        return []  # it is a house rule that was broken
    if fields is None:
        fields, _ = fields_read(check, challenge, right)
    both = compared(challenge, *(reduced(one, fields) for one in (right, evidence)))
    return relations_between(*both, calls)


def compared(challenge: Challenge, right: Any, evidence: Any) -> tuple[Any, Any]:
    """Return what is compared of two pieces of evidence: of operations on a cache, those up to the first
    that differs."""
    if not lists_of_operations(challenge):
        return right, evidence
    return up_to_the_first_difference(right, evidence)


def up_to_the_first_difference(right: Any, evidence: Any) -> tuple[Any, Any]:
    """Cut lists of records, each of one operation, behind the first that differs: what comes later
    follows from it."""
    if isinstance(right, dict) and isinstance(evidence, dict):
        cut = {
            name: up_to_the_first_difference(right[name], evidence[name])
            for name in right
            if name in evidence
        }
        return {name: both[0] for name, both in cut.items()}, {
            n: both[1] for n, both in cut.items()
        }
    if not (isinstance(right, list | tuple) and isinstance(evidence, list | tuple)):
        return right, evidence
    records = list(zip(right, evidence, strict=False))
    if records and all(isinstance(one, dict) and "outcome" in one for one in right):
        differ = (n for n, both in enumerate(records, 1) if any(p.differs for p in pairs_of(*both)))
        end = next(differ, len(records))
        return right[:end], evidence[:end]
    cut = [up_to_the_first_difference(*both) for both in records]
    return [both[0] for both in cut], [both[1] for both in cut]


def calls_of(
    check: Check, challenge: Challenge, functions: Mapping[str, Any], probe: Probe
) -> Calls:
    """Describe the calls of a challenge, which right functions can answer for other arguments, too.

    Args:
        functions: those that the check needs, by name; only their parameters are looked at.
    """
    parameters = {
        name: list(inspect.signature(functions[name]).parameters)
        for name in check.needs
        if inspect.isfunction(functions[name])
    }

    def answer(case: Any) -> Mapping[str, np.ndarray]:
        """Put one case alone to the right functions."""
        alone = {**challenge, "cases": [case]}
        evidence = probe(alone)
        pairs = fields_of(evidence, evidence, Calls(alone, parameters))
        first = {field: pairs[0].expected for field, pairs in pairs.items()}
        return {field: x for field, x in first.items() if isinstance(x, np.ndarray)}

    plain = len(parameters) == len(check.needs)  # a class is asked for more than single results
    return Calls(challenge, parameters, answer if plain else None)
