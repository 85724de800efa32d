"""Recognize a known mistake: compare wrong evidence with that of the museum's bugs.

When an answer is wrong, every bug of the lesson is put to the same challenge, here, for the museum's
code is our own. A bug whose evidence is the student's names the mistake. Evidence that several bugs
give names no more than their family, and only where they all agree on it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograder import wire
from autograder.diagnosis.comparison import Reply, same_reply
from autograder.lessons import find
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import FAMILIES, Bug, bugs_of
from autograder.lessons.reach import within_reach
from autograder.student import error_record
from course.checks.check import Challenge, Check, observe

KEPT = 16
"""Challenges whose evidence is kept, each of all bugs of a lesson: a file that is judged again, or
that two students handed in."""
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
            museum = candidates(lesson, check, challenge)
            return name_mistake(museum, reply, lambda bug: is_possible(lesson, bug, passed))
    except Exception:  # a message without a diagnosis is as good as it was before
        return None


def kind_of_error(reply: Reply) -> str:
    """Return the name of the exception that a probe stopped with; "" when it did not."""
    error = reply.get("error")
    return str(error.get("kind")) if type(error) is dict else ""


def name_mistake(
    museum: Iterable[tuple[Bug, Reply]],
    reply: Reply,
    possible: Callable[[Bug], bool] = lambda bug: True,
) -> Diagnosis | None:
    """Name the bug whose reply is the student's, or the family that several such bugs share.

    Args:
        possible: tells whether what else is known leaves room for a bug.
    """
    found = [bug for bug, known in museum if same_reply(known, reply) and possible(bug)]
    families = {bug.family for bug in found}
    if len(families) != 1:
        return None
    (family,) = families
    stopped = bool(kind_of_error(reply))
    if len(found) == 1:
        words = "Known to stop like this" if stopped else "These are the numbers of"
        return Diagnosis(found[0].name, family, f"{words}{':' * stopped} {found[0].mistake}.")
    words = "end like this" if stopped else "give these numbers"
    return Diagnosis("", family, f"Several mistakes {words}, all about {FAMILIES[family]}.")


# What the museum gives


SEEDS = (1, 2, 3)
"""What a bug loses at all of these, it loses at nearly every other."""
_losses: dict[tuple[str, str, str], bool] = {}
_kept: OrderedDict[bytes, list[tuple[Bug, Reply]]] = OrderedDict()
_lock = (
    threading.Lock()
)  # probes of sampling seed torch's own random numbers, which all threads share


def candidates(lesson: str, check: str, challenge: Challenge) -> list[tuple[Bug, Reply]]:
    """List the bugs that give a wrong reply to this challenge, with that reply; cached."""
    frame = wire.encode(challenge)
    key = hashlib.sha256(f"{lesson}.{check}:".encode() + frame).digest()
    with _lock:
        if key not in _kept:
            _kept[key] = _run_museum(lesson, find(f"{lesson}.{check}"), frame)
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        return _kept[key]


def _run_museum(lesson: str, check: Check, frame: bytes) -> list[tuple[Bug, Reply]]:
    right = answer(check, assemble(lesson, {}), frame)
    known = []
    for bug in bugs_of(lesson):
        if not set(bug.answer) & within_reach(lesson, check.needs):
            continue
        reply = answer(check, assemble(lesson, bug.answer), frame)
        if not same_reply(right, reply, own_words=True):
            known.append((bug, reply))
    return known


def is_possible(lesson: str, bug: Bug, passed: Collection[str]) -> bool:
    """Tell whether somebody who passed these checks can have made a mistake: it must not always lose
    one of them."""
    checks = (find(f"{lesson}.{name}") for name in passed)
    return not any(
        always_loses(lesson, bug, check)
        for check in checks
        if set(bug.answer) & within_reach(lesson, check.needs)
    )


def always_loses(lesson: str, bug: Bug, check: Check) -> bool:
    """Tell whether a bug loses points at a check at every one of SEEDS; cached."""
    key = (lesson, bug.name, check.name)
    with _lock:
        if key not in _losses:
            names = assemble(lesson, bug.answer)
            _losses[key] = all(loses(check, names, seed) for seed in SEEDS)
        return _losses[key]


def loses(check: Check, names: Mapping[str, Any], seed: int) -> bool:
    """Tell whether an answer loses points at a check, or stops."""
    try:
        return check.judge(names, seed).score < 1
    except Exception:  # NotImplementedError, and what a verdict finds no words for
        return True


def answer(check: Check, names: Mapping[str, Any], frame: bytes) -> Reply:
    """Run a check's probe on these functions; return the reply. The challenge is decoded anew,
    for a function may write into it."""
    try:
        evidence, broken = observe(check.probe, names, check.needs, wire.decode(frame))
        return {"evidence": evidence, "broken": broken}
    except Exception as error:
        return {"error": error_record(error)}
