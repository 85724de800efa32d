"""Checks of functions that turn sizes into one number, such as FLOPs, bytes or rows."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed

Sizes = tuple[int, ...]


def plain(value: Any) -> int | float | str:
    """A returned number as plain int or float; of anything else, what it is, in words."""
    if value is None:
        return "nothing (None)"
    if isinstance(value, bool | np.bool_):
        return "a bool"
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return f"a {type(value).__name__}"


def call_text(function: str, sizes: Sizes) -> str:
    """The call as a student would write it: "matmul_flops(2, 3, 4)"."""
    return f"{function}({', '.join(map(str, sizes))})"


def count_check(
    name: str,
    function: str,
    draw: Callable[[np.random.Generator], list[Sizes]],
    truth: Callable[..., int],
    question: Callable[[Sizes, float, int], str],
    praise: str,
) -> Check:
    """A check that compares `function(*sizes)` with `truth(*sizes)` for each of the drawn sizes.

    A float that is equal to the whole number passes: 36.0 is a right count.

    Args:
        name: of the check.
        function: name of the student's function.
        draw: the sizes, smallest first, so that the first failing case is the smallest.
        truth: the right number.
        question: the last sentence of a failure, for (sizes, the student's number, the right one).
        praise: the message of a pass.
    """

    def challenge(seed: int) -> Challenge:
        return {"sizes": draw(np.random.default_rng(seed))}

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        call = getattr(student, function)
        return {"values": [plain(call(*sizes)) for sizes in challenge["sizes"]]}

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        for sizes, got in zip(challenge["sizes"], evidence["values"], strict=True):
            case, right = call_text(function, sizes), truth(*sizes)
            if isinstance(got, str):
                return failed(f"{case} gave {got}; wanted is one number. What do you return?")
            if got != right:
                return failed(
                    f"{case} gave {got:,}; counted one by one it is {right:,}. "
                    f"{question(sizes, got, right)}"
                )
        return passed(praise)

    return Check(name, (function,), challenge, probe, verdict)
