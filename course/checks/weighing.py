"""Check bytes: of formulas, of what a cache reports, and of the tensors that it really keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from course.checks.caches import DTYPES, devices_of, stored_bytes
from course.checks.calls import Case
from course.checks.check import Each, Evidence
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.default_device import ELSEWHERE
from course.model.config import GPTConfig

WEIGHT = {
    "empty": NUMBER_OR_WORDS,
    "full": NUMBER_OR_WORDS,
    "kept": int,
    "stored": int,
    "misplaced": Each(str),
}
"""The form of what `weigh` returns."""


def weigh(make: Callable[..., Any], fill: Callable[[Any], Any]) -> Evidence:
    """Record what nbytes() says of a cache before and after it is filled, and weigh it both times; list
    where tensors of another one lie that was made for ELSEWHERE, and lie on another device.

    Args:
        make: makes a cache, on a `device` if one is given.
    """
    cache = make()
    empty, kept = plain(cache.nbytes()), stored_bytes(cache)
    fill(cache)
    weight = {"empty": empty, "full": plain(cache.nbytes()), "kept": kept}
    weight["stored"] = stored_bytes(cache)
    devices = devices_of(make(device=ELSEWHERE))
    return {**weight, "misplaced": [device for device in devices if device != ELSEWHERE]}


def wrong_weight(
    weight: Evidence, right: int, when: Iterable[str] = ("empty", "full")
) -> str | None:
    """Say what is wrong with what `weigh` found of a cache that takes `right` bytes.

    Args:
        when: of which caches nbytes() is compared.
    """
    stored = weight["stored"]
    if stored != right:
        question = (
            "What is kept twice, in too many places, in too many bytes each, or beside the rows?"
        )
        if stored < right:
            question = "What has too little room, or is not kept?"
        times = f"{stored / right:.3g} times the {right:,} that are needed"
        if times.startswith("1 times"):
            times = f"and {right:,} are needed"
        return f"your full cache keeps tensors of {stored:,} bytes, {times}. {question}"
    for which in when:
        if weight[which] != right:
            question = "What is allocated when, and what does nbytes() leave out, or count twice?"
            if not isinstance(weight[which], str) and weight[which] > right:
                question = "What does nbytes() count twice, or beside the rows that are kept?"
            return (
                f"nbytes() of the {which} cache gives {weight[which]}, and a full one keeps {right:,} "
                f"bytes. {question}"
            )
    if weight["empty"] not in (weight["kept"], weight["full"]):
        # Storage may be allocated as it is filled, and nbytes() may count all that it comes to.
        return (
            f"nbytes() of the empty cache gives {weight['empty']}, and its storage takes "
            f"{weight['kept']:,}. Does what you count depend on the tokens held?"
        )
    if misplaced := weight["misplaced"]:
        return (
            f'made with device="{ELSEWHERE}", it keeps tensors on the {misplaced[0]}; a GPU could not '
            f"use them. Which of its tensors are not told where to lie?"
        )
    return None


def wrong_bytes(result: int | float | str, right: int, question: str) -> str | None:
    """Say what is wrong with what a formula of bytes gave; what `plain` made of it is compared.

    Args:
        question: about a wrong number.
    """
    if isinstance(result, str):
        return f"gave {result}; expected is a number of bytes."
    if result != right:
        times = f"{result / right:.3g} times" if right else "not"
        return f"gives {result:,}, {times} the {right:,} that such a cache keeps. {question}"
    return None if type(result) is int else f"gives {result!r}; bytes are whole numbers, an int."


def dtype_name(n_bytes: int) -> str:
    """Name the dtype whose numbers take so many bytes."""
    return next(name for name, width in DTYPES.items() if width == n_bytes)


def run_with_config(function: Callable[..., Any], case: Case) -> Any:
    """Call a function of sizes, with a GPTConfig where the case has a dict."""
    return function(*(GPTConfig(**a) if isinstance(a, dict) else a for a in case["arguments"]))


def run_formula(function: Callable[..., Any], case: Case) -> Any:
    """Call a formula of bytes with a GPTConfig where the case has a dict; a float is no right result."""
    result = run_with_config(function, case)
    return f"{result!r}; bytes are whole numbers" if isinstance(result, float) else result
