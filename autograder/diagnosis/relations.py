"""Say what is true of a student's numbers, beside the reference's answers to the same challenge."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from autograder.lessons import find
from autograder.lessons.assembly import answer_cells
from autograder.run_record import run
from course.checks.check import Challenge, Check, Evidence
from course.checks.relations import to_right
from course.checks.relations.calls import Calls
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
        with np.errstate(all="ignore"):
            right = right_evidence(lesson, check, challenge)
            calls = calls_of(lesson, check, challenge)
            return to_right.relations_to(right, reply["evidence"], check, challenge, calls)
    except Exception:  # a message without them is as good as it was before
        return []


def right_evidence(lesson: str, check: Check, challenge: Challenge) -> Evidence:
    """Return the reference's evidence; a KeyError says that it stopped."""
    return run(lesson, answer_cells(lesson, {}), check, challenge)["evidence"]


def calls_of(lesson: str, check: Check, challenge: Challenge) -> Calls:
    """Describe the calls of a challenge, see `to_right`."""
    functions = vars(import_module(f"course.minigpt.{lesson}"))
    return to_right.calls_of(
        check, challenge, functions, lambda other: right_evidence(lesson, check, other)
    )
