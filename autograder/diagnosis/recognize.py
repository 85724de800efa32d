"""Recognize a known mistake: compare wrong evidence with that of the museum's bugs.

A question that is lost is put once more, with one challenge that is the same for everyone: what each bug
of the lesson replies to that is kept (`known_replies.py`). Bugs whose reply is the student's are put to
the lost challenge, too. What gives the student's evidence both times names the mistake; several such bugs
name no more than their family, and only where they all agree on it.

Where no evidence is all the same, the numbers that decided are enough, if there are many of them
(`deciding.py`): how many tensors a line of code writes on its way is a matter of style.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from autograder.diagnosis.catches import suspects
from autograder.diagnosis.comparison import same_reply
from autograder.diagnosis.deciding import Deciding
from autograder.diagnosis.known_replies import KnownReplies, deciding_about, wrong_replies
from autograder.lessons import find
from autograder.lessons.exhibits import FAMILIES, Bug
from autograder.run_record import Reply
from course.checks.check import Challenge

NOT_BEGUN = ("Missing", "NotImplementedError", "WireError")
"""Errors that say that there is nothing to recognise."""


@dataclass(frozen=True)
class Diagnosis:
    """A mistake that was recognised, as far as it was.

    Attributes:
        bug: the name of the one bug with this evidence; "" when only the family is known.
        family: one of FAMILIES; "" when not even that is known.
        sentence: what the student is told; "" where there is nothing to say.
        may_be: the names of all bugs that lose this question in the same way.
    """

    bug: str = ""
    family: str = ""
    sentence: str = ""
    may_be: frozenset[str] = frozenset()


def diagnose(
    known: KnownReplies,
    check: str,
    challenge: Challenge,
    reply: object,
    specimen: object = None,
    passed: Collection[str] = (),
) -> Diagnosis:
    """Name the mistake behind a wrong reply, if it is known. Never raises.

    A mistake is not named that would also lose what the student passed: other code of theirs gives
    these numbers.

    Args:
        known: what the bugs of the lesson reply.
        check: the name of the hidden check, without the lesson.
        challenge: what was asked.
        reply: what came back (`Reply`), in which nothing is believed.
        specimen: what came back of the challenge that is the same for everyone; None if nothing did.
        passed: the checks of the lesson with all points.
    """
    try:
        if type(reply) is not dict or kind_of_error(reply) in NOT_BEGUN:
            return Diagnosis()
        with np.errstate(all="ignore"):
            suspected = suspects(known.lesson, check, passed)
            alike = known.agreeing(check, suspected, specimen)
            if not alike:
                return Diagnosis()
            right, museum = wrong_replies(known.lesson, check, challenge, alike)
            hidden = find(f"{known.lesson}.{check}")
            deciding = deciding_about(known.lesson, hidden, challenge, right)
            named = name_mistake(museum, reply, deciding) or Diagnosis()
            return replace(named, may_be=frozenset(_losing_alike(museum, reply, deciding)))
    except Exception:  # a message without a diagnosis is as good as it was before
        return Diagnosis()


def kind_of_error(reply: Reply) -> str:
    """Return the name of the exception that a probe stopped with; "" when it did not."""
    error = reply.get("error")
    return str(error.get("kind")) if type(error) is dict else ""


def name_mistake(
    museum: Collection[tuple[Bug, Reply]], reply: Reply, deciding: Deciding | None = None
) -> Diagnosis | None:
    """Name the bug whose reply is the student's, or the family that several such bugs share.

    Args:
        deciding: what decides about these replies; None where all of it may.
    """
    found = _found(museum, reply, deciding)
    families = {bug.family for bug in found}
    if len(families) != 1:
        return None
    (family,) = families
    if len(found) == 1:
        words = "Known to stop like this:" if kind_of_error(reply) else "This comes from"
        return Diagnosis(found[0].name, family, f"{words} {found[0].mistake}.")
    words = "Several known mistakes end like this, all about"
    return Diagnosis("", family, f"{words} {FAMILIES[family]}.")


def _found(
    museum: Collection[tuple[Bug, Reply]], reply: Reply, deciding: Deciding | None
) -> list[Bug]:
    """List the bugs that this reply is enough to name."""
    found = [bug for bug, known in museum if same_reply(known, reply)]
    if not found and deciding and deciding.is_telling(reply):
        found = [bug for bug, known in museum if deciding.are_same(known, reply)]
    return found


def _losing_alike(
    museum: Collection[tuple[Bug, Reply]], reply: Reply, deciding: Deciding
) -> set[str]:
    """Name the bugs with this reply; where it says that the code stopped, those that stop with the same
    exception, which alone would be too little to name them."""
    if kind := kind_of_error(reply):
        return {bug.name for bug, known in museum if kind_of_error(known) == kind}
    return {bug.name for bug in _found(museum, reply, deciding)}
