"""Relations of refusals: what is taken that should be refused, and the other way round."""

from __future__ import annotations

import re

from course.checks.relations.pairs import RETURNED, Pair
from course.checks.relations.words import Relation

TAKEN = (RETURNED, "", "a token", "no token", "ok")
"""What evidence says of a call that was not refused."""
NAME = re.compile(r"\w+(Error|Full)")
"""The name of an exception."""


def is_outcome(pairs: list[Pair]) -> bool:
    """Tell whether a field says how calls went: with a result, or with which error."""
    if not isinstance(pairs[0].expected, str):
        return False
    said = {text for p in pairs if p.differs for text in (p.expected, p.got)}
    return bool(said) and all(text in TAKEN or NAME.fullmatch(text) for text in said)


def refusals(pairs: list[Pair], all_calls: bool) -> list[Relation]:
    """Say of a field of outcomes which kind of call has the wrong one, if it is only one.

    Args:
        all_calls: whether these are all calls that there were, so that they can be counted.
    """
    wrong = [p for p in pairs if p.differs]
    kinds = {(p.expected in TAKEN, p.got in TAKEN) for p in wrong}
    if len(kinds) != 1:
        return []
    should_take, takes = kinds.pop()
    times = f" ({_count(len(wrong), pairs)})" * all_calls
    if should_take and not takes:
        errors = " or ".join(sorted({p.got for p in wrong}))
        return [Relation(f"{errors} is raised where a result is expected{times}.")]
    if takes and not should_take:
        return [Relation(f"What should be refused is accepted{times}.")]
    if not takes and not should_take:
        names = sorted({p.got for p in wrong})
        return [Relation(f"It is refused, but with {' and '.join(names)}{times}.")]
    return []


def _count(n: int, pairs: list[Pair]) -> str:
    if n < len(pairs):
        return f"{n} of {len(pairs)} calls"
    # Other fields may say the same of more calls, and of those that went well there may be no record.
    return f"in {n} calls at least" if n > 1 else "in one call at least"
