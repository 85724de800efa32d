"""Check the bytes of a cache: by a formula, by its own count, and as it stores them.

A challenge has `cases`, of which a cache is made and weighed, and beside them `formula`, of which the
formula alone is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.checks.caches import stored_bytes
from course.checks.check import Challenge, Evidence
from course.checks.counts import NUMBER_OR_WORDS, plain

Number = int | float | str
"""What `plain` returns."""
WEIGHED = {"empty": NUMBER_OR_WORDS, "full": NUMBER_OR_WORDS, "stored": int}
"""The form of what `weigh` returns."""


def weigh(cache: Any, fill: Callable[[Any], Any]) -> Evidence:
    """Ask a cache for its bytes before and after it is filled, and add up what it stores."""
    empty = plain(cache.nbytes())
    fill(cache)
    return {"empty": empty, "full": plain(cache.nbytes()), "stored": stored_bytes(cache)}


def bytes_form(challenge: Challenge) -> Evidence:
    """The form of evidence: the formula for all cases, the same by default, and what was weighed."""
    n = len(challenge["cases"])
    numbers = [NUMBER_OR_WORDS] * (n + len(challenge["formula"]))
    return {"formula": numbers, "by_default": numbers, "weighed": [WEIGHED] * n}


def wrong_bytes(
    function: str,
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge], int],
    describe: Callable[[Challenge], str],
) -> str | None:
    """Compare the formula, its defaults, what is stored and what nbytes() says with `truth`, the bytes of
    a case.

    Args:
        function: name of the formula, which by default counts one row of float16.
        describe: says the sizes of a case.
    """
    cases = [*challenge["cases"], *challenge["formula"]]
    for case, got in zip(cases, evidence["formula"], strict=True):
        if wrong := _wrong_formula(function, got, truth(case)):
            return f"{describe(case)}: {wrong}"
    for case, got in zip(cases, evidence["by_default"], strict=True):
        one_row = truth({**case, "batch": 1, "dtype": "float16"})
        if got != one_row:
            return (
                f"{describe(case)}: {function} by default gives {got}, wanted is {one_row:,}. Which "
                f"batch and which bytes_per_element does the signature name?"
            )
    for case, weighed in zip(challenge["cases"], evidence["weighed"], strict=True):
        if wrong := _wrong_weight(weighed, truth(case)):
            return f"{describe(case)}: {wrong}"
    return None


def _wrong_formula(function: str, got: Number, right: int) -> str | None:
    if isinstance(got, str):
        return f"{function} gave {got}; wanted is a number of bytes. What do you return?"
    if got != right:
        times = f"{got / right:.3g} times" if right else "not"
        return (
            f"{function} gives {got:,}, which is {times} what such a cache holds. Which of the sizes is "
            f"missing, or one too many?"
        )
    return None if type(got) is int else f"{function} gives {got!r}; bytes are whole numbers."


def _wrong_weight(weighed: Evidence, right: int) -> str | None:
    stored, empty, full = weighed["stored"], weighed["empty"], weighed["full"]
    if stored != right:
        question = "How many heads does it store, for how many tokens, in which dtype?"
        if right < stored:
            question = "What else of floats does it hold on to, for how many heads, in which dtype?"
        return (
            f"your full cache keeps tensors of {stored:,} bytes, {stored / right:.3g} times what is "
            f"needed. {question}"
        )
    for when, got in (("empty", empty), ("full", full)):
        if isinstance(got, str):
            return f"nbytes() gave {got}; wanted is a number of bytes. What do you return?"
        if got != right:
            question = "Is all that is stored in it, and is the result in bytes?"
            if full == right:
                question = "The full cache gives it. When is the memory of the storage taken?"
            elif isinstance(empty, str) or empty >= right:
                question = (
                    "What is in it that is not stored, or of which size is a number taken to be?"
                )
            return (
                f"nbytes() of the {when} cache gives {got:,}, and the storage of a cache occupies "
                f"{right:,}, whether filled or not. {question}"
            )
    return None
