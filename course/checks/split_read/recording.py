"""Record the parts and outputs that a student's functions return, and tell what is wrong about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import RECORD, record, wrong_form
from course.given.parts import Part

FIELDS = ("top", "total", "out")
"""Of a part, in the order in which they are looked at: each needs those before it."""
PART = {"kind": str, **dict.fromkeys(FIELDS, RECORD)}
"""The form of what `record_part` returns."""
TOLERANCE = 1e-4
"""For float32; of a number above 1, a part of it. Right answers stay within a tenth of it, see
tests/test_margins.py."""
Numbers = Mapping[str, np.ndarray]
"""A part as plain arrays: out, top and total."""
Truth = Callable[[Challenge], Any]


def record_part(value: Any) -> dict[str, Any]:
    """Record the three tensors of a part; of anything else, what it is, in words ("kind")."""
    kind = "" if isinstance(value, Part) else in_words(value)
    return {"kind": kind, **{name: record(getattr(value, name, None)) for name in FIELDS}}


def make_part(numbers: Numbers, dtype: str = "float32") -> Part:
    """Make the part that a student's function is given, in another order of memory."""
    kind = getattr(torch, dtype)
    return Part(*(given(numbers[name], kind) for name in Part._fields))


def unwatched(function: Any) -> Any:
    """Return a student's function without the recorder around it: whether parts stay as they were is a
    question of its own, `inputs_stay`."""
    return getattr(function, "__wrapped__", function)


def differs(got: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Tell where numbers differ, bool in their shape: by more than the tolerance, or by more than that
    part of a wanted number above 1. Infinity equals infinity alone, and 0, the sum of who sees nothing,
    equals 0 alone."""
    with np.errstate(invalid="ignore"):
        delta = np.abs(got.astype(np.float64) - expected)
    close = delta <= tolerance * np.maximum(1, np.abs(expected))
    exact = np.isinf(expected) | (expected == 0)
    close[exact] = got[exact] == expected[exact]
    return ~close


def first_wrong(
    got: Mapping[str, Any], expected: np.ndarray, dtype: str, tolerance: float
) -> tuple[str, tuple[int, ...] | None]:
    """Tell what is wrong about a recorded tensor, and where (row, head, query, feature): ("", None)
    where nothing is, and no place where its form is wrong."""
    if wrong := wrong_form(got, expected.shape, dtype):
        return wrong, None
    bad = np.argwhere(differs(got["numbers"], expected, tolerance))
    if not len(bad):
        return "", None
    row, head, query, feature = at = tuple(bad[0].tolist())
    what = (
        f"{plain(got['numbers'][at])} and not {plain(expected[at])} (batch row {row}, head {head}, query "
        f"{query}{f', feature {feature}' * (expected.shape[3] > 1)}; tolerance {tolerance:g})"
    )
    return what, at


def wrong_part(
    got: Mapping[str, Any],
    expected: Numbers,
    dtype: str,
    tolerance: float,
    questions: Mapping[str, str],
    later: tuple[str, ...] = (),
) -> str | None:
    """Tell the first field of a part that is wrong, and ask about it; None where all are right.

    Args:
        questions: by field.
        later: asked instead where the first row is right, where its first head is, and where the first
            query of that is.
    """
    if got["kind"]:
        return f"gave {got['kind']}; wanted is a Part. What do you return?"
    for name in FIELDS:
        wrong, at = first_wrong(got[name], expected[name], dtype, tolerance)
        if at:
            asked = (question for place, question in zip(at, later, strict=False) if place)
            question = next(asked, questions[name])
            for other in FIELDS:
                same = other != name and expected[other].shape == expected[name].shape
                if same and not differs(got[name]["numbers"], expected[other], tolerance).any():
                    question = f"That is its {other}. In which order does a Part take its fields?"
            return f"gave a part whose {name} is {wrong}. {question}"
        if wrong:
            return f"gave a part whose {name} {wrong.replace('gave', 'has', 1)}"
    return None


def wrong_output(
    got: Mapping[str, Any], expected: np.ndarray, dtype: str, tolerance: float, question: str
) -> str | None:
    """Tell what is wrong about an output (B, H, T, D), and ask about it; None where nothing is."""
    wrong, at = first_wrong(got, expected, dtype, tolerance)
    return f"gave {wrong}. {question}" if at else wrong or None


def plain(number: float) -> str:
    """Write a number with four digits."""
    return f"{float(number):.4g}"
