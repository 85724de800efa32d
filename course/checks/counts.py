"""Check functions that turn sizes into one number, such as FLOPs, bytes or rows."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed

Sizes = tuple[int, ...]
NUMBER_OR_WORDS = (int, float, str)
"""The form of what `plain` returns."""
MOST_BITS = 1000
"""Of a whole number that is still compared: a float holds no more than 1,024, and Python prints none
of more than 4,300 digits."""


def plain(value: Any) -> int | float | str:
    """Turn a returned number into a plain int or float; describe anything else in words."""
    if isinstance(value, bool | np.bool_):
        return "a bool"
    if isinstance(value, numbers.Integral):
        whole = int(value)
        if whole.bit_length() > MOST_BITS:
            return f"a number of about {math.ceil(whole.bit_length() * math.log10(2)):,} digits"
        return whole
    if isinstance(value, numbers.Real):
        return float(value)
    return in_words(value)


def in_words(value: Any) -> str:
    """Say what came in the place of what was asked for."""
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def counted(result: float, expected: int) -> str:
    """Say what a function gave, and what is right."""
    return f"gave {result:,}; counted one by one it is {expected:,}."


def call_text(function: str, sizes: Sizes) -> str:
    """Write a call as a student would: "matmul_flops(2, 3, 4)"."""
    return f"{function}({', '.join(map(str, sizes))})"


def drawn_by(draw: Callable[[np.random.Generator], list[Sizes]]) -> Callable[[int], Challenge]:
    """Make a challenge of the sizes that `draw` draws."""
    return lambda seed: {"sizes": draw(np.random.default_rng(seed))}


def one_value_each(challenge: Challenge) -> Evidence:
    """Declare the form of evidence: one value for each of the challenge's sizes."""
    return {"values": [NUMBER_OR_WORDS] * len(challenge["sizes"])}


def count_check(
    name: str,
    function: str,
    challenge: Callable[[int], Challenge],
    truth: Callable[..., int],
    question: Callable[[Sizes, float, int], str],
    praise: str,
) -> Check:
    """Check that `function(*sizes)` equals `truth(*sizes)` for each of the drawn sizes.

    A float that is equal to the whole number passes: 36.0 is a right count.

    Args:
        name: of the check.
        function: name of the student's function.
        challenge: draws {"sizes": …}, smallest first, so that the first failing case is the smallest.
        truth: the right number.
        question: the last sentence of a failure, for (sizes, the student's number, the right one).
        praise: the message of a pass.
    """

    def probe(student: SimpleNamespace, challenge: Challenge) -> Evidence:
        call = getattr(student, function)
        return {"values": [plain(call(*sizes)) for sizes in challenge["sizes"]]}

    def verdict(challenge: Challenge, evidence: Evidence, truth: Callable[..., int]) -> Verdict:
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

    return Check(name, (function,), challenge, probe, verdict, evidence=one_value_each, truth=truth)
