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
from course.checks.relations.pairs import fields_of
from course.checks.relations.words import Relation

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
    fields, verdict = fields_read(check, challenge, right)
    fields = fields if verdict and verdict.score == 1 else None
    both = (reduced(one, fields) for one in (right, evidence))
    return relations_between(*both, calls)


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
