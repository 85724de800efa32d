"""Compare two replies to one challenge: numbers within a tolerance, all else exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder.run_record import Reply

TOLERANCE = 1e-4
"""Largest difference of two numbers that are the same: that of the checks for numbers up to 1, and in
proportion above, for a mistake may make them large. Right answers in all styles stay below 2e-5."""

HALF_TOLERANCE = 4e-3
"""The same for numbers in float16, whose neighbours differ by 1e-3 of their size: right styles of one
formula round to different ones."""

TELLING = "RuntimeError"
"""What PyTorch raises, with the sizes that do not fit. Other exceptions come of many mistakes: to
have stopped with the same one says nothing."""

WITH_SIZES = (TELLING, "IndexError")
"""Those among evidence whose words must be the same: an index and the size that it does not fit."""

OWN_WORDS = ("words", "message", "stopped")
"""Fields of evidence that hold the message of an exception. PyTorch's own messages say what happened;
those of a student's `raise` are the student's words, and count only by being there."""


def same_reply(known: Reply, reply: object, own_words: bool = False) -> bool:
    """Tell whether a student's reply equals a known one; the reply may hold anything.

    Args:
        own_words: whether the words of exceptions in the evidence must always be the same, too.
    """
    if type(reply) is not dict:
        return False
    if (error := known.get("error")) is not None:
        other = reply.get("error")
        if type(other) is not dict:
            return False
        return error["kind"] == TELLING and all(error[n] == other.get(n) for n in ("kind", "words"))
    if reply.get("error") is not None:
        return False
    if known.get("broken", []) != reply.get("broken", []):
        return False
    return same(known["evidence"], reply.get("evidence"), own_words)


def same(a: Any, b: Any, own_words: bool = False) -> bool:
    """Tell whether two pieces of evidence are the same in structure and value."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and _near(a, b)
    if type(a) in (int, float) and type(b) in (int, float):
        return _near(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        free = not own_words and not any(a.get(n) in WITH_SIZES for n in ("error", "outcome"))
        return a.keys() == b.keys() and all(
            _both_speak(a[name], b[name])
            if free and name in OWN_WORDS
            else same(a[name], b[name], own_words)
            for name in a
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(*pair, own_words) for pair in zip(a, b, strict=True))
    return a == b


def _near(a: Any, b: Any) -> bool:
    """Compare numbers: whole ones exactly, others within TOLERANCE; NaN equals NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return bool((a == b).all())
    if "O" in (a.dtype.kind, b.dtype.kind):  # a whole number beyond 64 bits
        a, b = a.astype(np.float64), b.astype(np.float64)
    tolerance = HALF_TOLERANCE if a.dtype == np.float16 else TOLERANCE
    return bool(np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True).all())


def _both_speak(a: object, b: object) -> bool:
    return type(a) is type(b) is str and bool(a) == bool(b)
