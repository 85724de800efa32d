"""Say why a question is lost by the smallest case: no more operations on a cache than are needed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from autograder.lessons.assembly import answer_cells
from autograder.run_record import decide, run
from autograder.sandbox.child import Child, ChildFault, MachineBusy
from course.checks.check import Challenge, Check, Verdict, complete
from course.checks.shrinking import lists_of_operations, shrink

TRIES = 32
"""Smaller challenges that are put to a submission; most take it a few milliseconds."""


def about_fewer_operations(
    child: Child, lesson: str, check: Check, challenge: Challenge, message: str, seconds: float
) -> str:
    """Return the message about the smallest challenge that is still lost, or the given one where a
    challenge has no operations that could be left out.

    Args:
        child: the process that lost the challenge.
        message: what was said of it.
        seconds: that one challenge may take.
    """
    if not lists_of_operations(challenge):
        return message
    lost: list[str] = [message]

    def fails(smaller: Challenge) -> bool:
        request = {"probe": check.name, "needs": list(check.needs), "challenge": smaller}
        verdict = _verdict(check, smaller, child.ask(request, seconds))
        if verdict is None or verdict.score == 1:
            return False
        right = run(lesson, answer_cells(lesson, {}), check, smaller)
        if decide(check, smaller, right).score < 1:  # too much was left out
            return False
        lost.append(verdict.message)
        return True

    with suppress(ChildFault, MachineBusy):
        if isinstance(challenge.get("long"), int):  # the length of a text that no operation feeds
            challenge = {**challenge, "long": 0}
            if not fails(challenge):
                return message
        shrink(challenge, fails, TRIES)
    return lost[-1]


def _verdict(check: Check, challenge: Challenge, reply: Any) -> Verdict | None:
    """Judge a reply, which may hold anything; None where a part is missing, or nothing can be judged."""
    try:
        with np.errstate(all="ignore"):
            if not complete(reply["evidence"], check.evidence(challenge)):
                return None
            return check.decide(challenge, reply["evidence"], reply.get("broken"))
    except Exception:
        return None
