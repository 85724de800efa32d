"""Put the museum's bugs to a challenge, here in this process: their code is our own."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from autograder import wire
from autograder.diagnosis.comparison import Reply, same_reply
from autograder.lessons import find
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import Bug, bugs_of
from autograder.lessons.reach import within_reach
from autograder.student import error_record
from course.checks.check import Challenge, Check, observe

_lock = threading.Lock()
"""Torch's random numbers, which probes of sampling seed, are those of all threads."""


def candidates(
    lesson: str, check: str, challenge: Challenge, bugs: Collection[Bug] | None = None
) -> list[tuple[Bug, Reply]]:
    """List the bugs that give a wrong reply to this challenge, with that reply.

    Args:
        bugs: those that are tried, if not all of the lesson.
    """
    right, replies = all_replies(lesson, check, challenge, bugs)
    return [(bug, reply) for bug, reply in replies if not same_reply(right, reply, own_words=True)]


def all_replies(
    lesson: str, check: str, challenge: Challenge, bugs: Collection[Bug] | None = None
) -> tuple[Reply, list[tuple[Bug, Reply]]]:
    """Return the reference's reply to a challenge, and those of the bugs in what the check reaches."""
    asked, frame = find(f"{lesson}.{check}"), wire.encode(challenge)
    reached = within_reach(lesson, asked.needs)
    tried = bugs_of(lesson) if bugs is None else bugs
    with _lock:
        right = answer(asked, assemble(lesson, {}), frame)
        return right, [
            (bug, answer(asked, assemble(lesson, bug.answer), frame))
            for bug in tried
            if set(bug.answer) & reached
        ]


def reply_of(lesson: str, check: str, challenge: Challenge, bug: Bug) -> Reply | None:
    """Return a bug's reply to a challenge; None where the check does not reach it."""
    asked = find(f"{lesson}.{check}")
    if not set(bug.answer) & within_reach(lesson, asked.needs):
        return None
    with _lock:
        return answer(asked, assemble(lesson, bug.answer), wire.encode(challenge))


def answer(check: Check, names: Mapping[str, Any], frame: bytes) -> Reply:
    """Run a check's probe on these functions; return the reply. The challenge is decoded anew,
    for a function may write into it."""
    try:
        evidence, broken = observe(check.probe, names, check.needs, wire.decode(frame))
        return {"evidence": evidence, "broken": broken}
    except Exception as error:
        return {"error": error_record(error)}
