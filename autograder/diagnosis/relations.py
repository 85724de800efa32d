"""Say what is true of a student's numbers, beside the reference's answers to the same challenge."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from autograder.diagnosis.deciding import fields_read, reduced
from autograder.lessons import find
from autograder.lessons.assembly import answer_cells
from autograder.run_record import Reply, run
from course.checks.check import Challenge, Check
from course.checks.relations import relations_between
from course.checks.relations.calls import Calls
from course.checks.relations.pairs import fields_of
from course.checks.relations.words import Relation


def relations(lesson: str, name: str, challenge: Challenge, reply: Any) -> list[Relation]:
    """List what is true of the wrong numbers in a reply, which may hold anything. Never raises.

    Args:
        lesson: the module's name, such as "kv_cache".
        name: of the hidden check, without the lesson.
        challenge: what was asked.
    """
    try:
        if type(reply) is not dict or "evidence" not in reply:
            return []
        check = find(f"{lesson}.{name}")
        right = run(lesson, answer_cells(lesson, {}), check, challenge)
        with np.errstate(all="ignore"):
            return relations_to(right, reply["evidence"], lesson, check, challenge)
    except Exception:  # a message without them is as good as it was before
        return []


def relations_to(
    right: Reply,
    evidence: Any,
    lesson: str,
    check: Check,
    challenge: Challenge,
    calls: Calls | None = None,
) -> list[Relation]:
    """List what is true of the numbers in evidence, beside the reference's reply to the challenge.

    Args:
        calls: those of the challenge, where they serve several replies.
    """
    fields, verdict = fields_read(check, challenge, right)
    fields = fields if verdict and verdict.score == 1 else None
    both = (reduced(one, fields) for one in (right["evidence"], evidence))
    return relations_between(*both, calls or calls_of(lesson, check, challenge))


def calls_of(lesson: str, check: Check, challenge: Challenge) -> Calls:
    """Describe the calls of a challenge, which the reference can answer for other arguments, too."""
    functions = vars(import_module(f"course.minigpt.{lesson}"))
    parameters = {
        name: list(inspect.signature(functions[name]).parameters)
        for name in check.needs
        if inspect.isfunction(functions[name])
    }

    def answer(case: Any) -> Mapping[str, np.ndarray]:
        """Put one case alone to the reference; a KeyError says that it stopped."""
        alone = {**challenge, "cases": [case]}
        evidence = run(lesson, answer_cells(lesson, {}), check, alone)["evidence"]
        pairs = fields_of(evidence, evidence, Calls(alone, parameters))
        first = {field: pairs[0].expected for field, pairs in pairs.items()}
        return {field: x for field, x in first.items() if isinstance(x, np.ndarray)}

    plain = len(parameters) == len(check.needs)  # a class is asked for more than single results
    return Calls(challenge, parameters, answer if plain else None)
