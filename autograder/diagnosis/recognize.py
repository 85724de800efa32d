"""Recognize a known mistake: compare wrong evidence with that of the museum's bugs.

When an answer is wrong, every bug of the lesson is put to the same challenge, here, for the museum's
code is our own. A bug whose evidence is the student's names the mistake. Evidence that several bugs
give names no more than their family, and only where they all agree on it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograder import wire
from autograder.diagnosis.comparison import Reply, same_reply
from autograder.diagnosis.losses import suspects
from autograder.lessons import find
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of
from autograder.lessons.reach import within_reach
from autograder.student import error_record
from course.checks.check import Challenge, Check, observe

KEPT = 16
"""Challenges whose evidence is kept: a file that is judged again, or that two students handed in."""
NOT_BEGUN = ("Missing", "NotImplementedError", "WireError")
"""Errors that say that there is nothing to recognise."""


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that was recognised.

    Attributes:
        bug: the name of the one bug with this evidence; "" when only the family is known.
        family: one of FAMILIES.
        sentence: what the student is told.
    """

    bug: str
    family: str
    sentence: str


def diagnose(
    lesson: str,
    check: str,
    challenge: Challenge,
    reply: object,
    passed: Collection[str] = (),
) -> Diagnosis | None:
    """Name the mistake behind a wrong reply, or None where it is not known. Never raises.

    A mistake is not named that would also lose what the student passed: other code of theirs gives
    these numbers.

    Args:
        lesson: the module's name, such as "kv_cache".
        check: the name of the hidden check, without the lesson.
        challenge: what was asked.
        reply: what came back (`Reply`), in which nothing is believed.
        passed: the checks of the lesson with all points.
    """
    try:
        if type(reply) is not dict or kind_of_error(reply) in NOT_BEGUN:
            return None
        with np.errstate(all="ignore"):
            suspected = suspects(lesson, check, passed)
            return name_mistake(candidates(lesson, check, challenge, suspected), reply)
    except Exception:  # a message without a diagnosis is as good as it was before
        return None


def kind_of_error(reply: Reply) -> str:
    """Return the name of the exception that a probe stopped with; "" when it did not."""
    error = reply.get("error")
    return str(error.get("kind")) if type(error) is dict else ""


def name_mistake(museum: Iterable[tuple[Bug, Reply]], reply: Reply) -> Diagnosis | None:
    """Name the bug whose reply is the student's, or the family that several such bugs share."""
    found = [bug for bug, known in museum if same_reply(known, reply)]
    families = {bug.family for bug in found}
    if len(families) != 1:
        return None
    (family,) = families
    stopped = bool(kind_of_error(reply))
    if len(found) == 1:
        words = "Known to stop like this" if stopped else "These numbers come from"
        return Diagnosis(found[0].name, family, f"{words}{':' * stopped} {found[0].mistake}.")
    words = "end like this" if stopped else "give these numbers"
    return Diagnosis("", family, f"Several mistakes {words}, all about {FAMILIES[family]}.")


# What the museum gives


_kept: OrderedDict[bytes, dict[str, Reply | None]] = OrderedDict()
"""Replies by challenge and bug; None where it is that of the reference."""
_lock = threading.Lock()  # torch's random numbers, which probes of sampling seed, are all threads'


def candidates(
    lesson: str, check: str, challenge: Challenge, bugs: Collection[Bug] | None = None
) -> list[tuple[Bug, Reply]]:
    """List the bugs that give a wrong reply to this challenge, with that reply; cached.

    Args:
        bugs: those that are tried, if not all of the lesson.
    """
    frame, asked = wire.encode(challenge), find(f"{lesson}.{check}")
    key = hashlib.sha256(f"{lesson}.{check}:".encode() + frame).digest()
    reached = within_reach(lesson, asked.needs)
    with _lock:
        replies = _kept.setdefault(key, {})
        _kept.move_to_end(key)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
        tried = [b for b in (bugs_of(lesson) if bugs is None else bugs) if set(b.answer) & reached]
        for bug in tried:
            if bug.name not in replies:
                replies[bug.name] = _wrong_reply(lesson, asked, bug, frame, replies)
    return [(bug, reply) for bug in tried if (reply := replies[bug.name]) is not None]


def _wrong_reply(
    lesson: str, check: Check, bug: Bug, frame: bytes, replies: dict[str, Reply | None]
) -> Reply | None:
    """Answer as a bug does; None where the reference, whose reply is kept under "", says the same."""
    if "" not in replies:
        replies[""] = answer(check, assemble(lesson, {}), frame)
    reply = answer(check, assemble(lesson, bug.answer), frame)
    return None if same_reply(replies[""], reply, own_words=True) else reply


def answer(check: Check, names: Mapping[str, Any], frame: bytes) -> Reply:
    """Run a check's probe on these functions; return the reply. The challenge is decoded anew,
    for a function may write into it."""
    try:
        evidence, broken = observe(check.probe, names, check.needs, wire.decode(frame))
        return {"evidence": evidence, "broken": broken}
    except Exception as error:
        return {"error": error_record(error)}
