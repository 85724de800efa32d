"""Show a student why a visible check fails: the smallest case, what is true of the wrong numbers, and
three lines that show both.

    FAIL  A cache of 9 places, float32: a new one: …

    To see it again:
        from course.checks.kv_cache import cache_can_go_back as check
        case = check.smallest(KVCache)
        check.show(case, KVCache)

What is right comes from our functions, where the course gives them; without them the message is the
check's own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, observe
from course.checks.relations.fields import fields_read, reduced
from course.checks.relations.pairs import IN_WORDS, Pair, pairs_of
from course.checks.relations.to_right import calls_of, relations_to
from course.checks.relations.words import Relation, over_all_cases, with_relations
from course.checks.shrinking import shrink

TRIES, SECONDS = 200, 3.0
"""How many smaller challenges are tried, and about how long that may take."""
LONGEST = 4_000
"""Characters of a message."""
FEW = 40
"""Numbers of an array that are shown whole."""


def explain(check: Check, functions: Mapping[str, Any], challenge: Challenge, message: str) -> str:
    """Return what a student reads whose functions fail a check: about the smallest case, where that still
    fails when it is tried once more.

    Args:
        functions: the student's, by name.
        message: the check's own.
    """
    if None in functions.values():
        return message
    again, _ = check.attempt(functions, smallest(check, functions, challenge))
    if again.score < 1:
        message = again.message
    # Of several cases more can be told than of one.
    _, evidence = check.attempt(functions, challenge)
    if evidence is not None:
        relations = over_all_cases(_relations(check, challenge, evidence))
        message = with_relations(message, relations, LONGEST)
    return f"{message}{_three_lines(check, functions)}"


def smallest(check: Check, functions: Mapping[str, Any], challenge: Challenge) -> Challenge:
    """Leave out of a challenge what is not needed for the check to fail. Without our functions nobody
    knows whether too much was left out, and nothing is."""
    ours = _ours(check)

    def fails(smaller: Challenge) -> bool:
        return _fails(check, functions, smaller) and _right(check, ours, smaller) is not None

    begun = time.perf_counter()
    if not ours or not fails(challenge):
        return challenge
    once = time.perf_counter() - begun
    return shrink(challenge, fails, min(TRIES, int(SECONDS / once)))


def _relations(check: Check, case: Challenge, evidence: Evidence) -> list[Relation]:
    """List what is true of the wrong numbers beside those of our functions."""
    ours = _ours(check)
    right = _right(check, ours, case) if ours else None
    if right is None:
        return []
    calls = calls_of(
        check, case, ours, lambda other: observe(check.probe, ours, check.needs, other)[0]
    )
    try:
        with np.errstate(all="ignore"):
            return relations_to(right, evidence, check, case, calls)
    except Exception:  # evidence may be anything; the message is as good as it was
        return []


def show(check: Check, functions: Mapping[str, Any], case: Challenge) -> Iterator[str]:
    """Write what went in, and each piece of what came back that is wrong, as lines. An exception of the
    student's code passes through, so that its traceback is seen."""
    for name, value in case.items():
        yield from _lines(name, value)
    evidence, _ = observe(check.probe, functions, check.needs, case)
    ours = _ours(check)
    right = _right(check, ours, case) if ours else None
    if right is None:
        yield from _lines("yours", evidence)
        return
    fields, _ = fields_read(check, case, right)
    for pair in pairs_of(reduced(right, fields), reduced(evidence, fields)):
        if pair.differs:
            field = pair.field.removesuffix(IN_WORDS).lstrip(".*")
            for number in pair.case:
                field = field.replace("*", f"[{number}]", 1)
            yield from _differences(field, pair)


def _differences(field: str, pair: Pair) -> Iterator[str]:
    """Write what came back and what is right; of long arrays the first number that differs."""
    got, right = pair.got, pair.expected
    if isinstance(right, str) or right.shape != got.shape or right.size <= FEW:
        yield from _lines(f"yours: {field}", got)
        yield from _lines(f"right: {field}", right)
        return
    places = np.argwhere(pair.wrong)
    first = tuple(places[0].tolist())
    yield f"{field}{list(first)} is {got[first]:.6g}, right is {right[first]:.6g}"
    yield f"{field} has {right.size:,} numbers, of which {len(places):,} are wrong"


def _fails(check: Check, functions: Mapping[str, Any], challenge: Challenge) -> bool:
    try:
        return check.attempt(functions, challenge)[0].score < 1
    except Exception:  # a verdict that misses what was left out
        return False


def _right(check: Check, ours: Mapping[str, Any], challenge: Challenge) -> Evidence | None:
    """Return our functions' evidence, if they pass."""
    try:
        verdict, evidence = check.attempt(ours, challenge)
    except Exception:
        return None
    return evidence if verdict.score == 1 else None


def _ours(check: Check) -> dict[str, Any] | None:
    """Return our functions that a check calls; None where the course does not give them."""
    try:
        module = import_module(f"course.minigpt.{_lesson_of(check)}")
        return {name: getattr(module, name) for name in check.needs}
    except (ImportError, AttributeError):
        return None


def _lesson_of(check: Check) -> str:
    """Return the lesson that shows a check, "" where none does."""
    for name, module in list(sys.modules.items()):
        if name.startswith("course.checks.") and vars(module).get(check.name) is check:
            return name.split(".")[2]
    return ""


def _three_lines(check: Check, functions: Mapping[str, Any]) -> str:
    if not (lesson := _lesson_of(check)):
        return ""
    names = {name: getattr(functions[name], "__name__", name) for name in check.needs}
    given = ", ".join(own if own.isidentifier() else name for name, own in names.items())
    return (
        f"\n\nTo see it again:\n    from course.checks.{lesson} import {check.name} as check"
        f"\n    case = check.smallest({given})\n    check.show(case, {given})"
    )


def _lines(name: str, value: Any) -> Iterator[str]:
    """Write a value behind its name: what has parts below each other, arrays that are long by shape."""
    if isinstance(value, dict) and any(
        isinstance(v, dict | list | np.ndarray) for v in value.values()
    ):
        for key, part in value.items():
            yield from _lines(f"{name}.{key}", part)
    elif isinstance(value, list | tuple) and any(isinstance(v, dict | np.ndarray) for v in value):
        for number, part in enumerate(value):
            yield from _lines(f"{name}[{number}]", part)
    elif isinstance(value, np.ndarray) and value.size > FEW:
        yield f"{name} = {value.dtype} {value.shape}"
    else:
        with np.printoptions(precision=4, suppress=True):
            yield f"{name} = {value}"
