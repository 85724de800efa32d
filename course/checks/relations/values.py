"""Relations of values: what the wrong numbers are of the right ones, wherever they lie."""

from __future__ import annotations

import math

import numpy as np

from course.checks.relations.pairs import Pair, near
from course.checks.relations.words import Relation

FEWEST = 3
"""Wrong numbers that must agree before anything is said of them."""
EXACT = 1e-3
"""The relative spread that a constant factor may have."""
READINGS = {
    2.0: "twice",
    0.5: "half",
    1e-9: "a number in units of 10⁹ (giga)",
    1e9: "a number in units of 10⁻⁹ (nano)",
    1e-6: "a number in units of 10⁶ (mega)",
    1e6: "a number in units of 10⁻⁶ (micro)",
    1e3: "a number in units of 10⁻³ (milli)",
    1e-3: "a number in units of 10³ (kilo)",
    2.0**-30: "a number in units of 2³⁰ (GiB)",
    2.0**-20: "a number in units of 2²⁰ (MiB)",
    8.0: "bits for bytes",
    0.125: "bytes for bits",
}
ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance of neighbouring numbers in small types, as a part of them."""


def values(pairs: list[Pair]) -> list[Relation]:
    """Say what the wrong numbers of a field are of the right ones; [] where nothing is known."""
    wrong = [p for p in pairs if p.differs]
    if any(p.expected.shape != p.got.shape for p in wrong) or wrong[0].expected.dtype.kind == "b":
        return masks(wrong)
    expected = np.concatenate([p.expected[p.wrong].astype(np.float64) for p in wrong])
    got = np.concatenate([p.got[p.wrong].astype(np.float64) for p in wrong])
    lost = ~np.isfinite(got) & np.isfinite(expected)
    if lost.all():
        return [Relation("The wrong numbers are all NaN or infinite.")]
    if lost.any() or len(got) < FEWEST or len(np.unique(expected)) < 2:
        return []
    for say in (_zero, _constant, _wrapped, _factor, _rounded, _offset):
        if relation := say(expected, got, wrong):
            return [relation]
    return []


def masks(wrong: list[Pair]) -> list[Relation]:
    """Say how the wrong masks differ: opposites, or only too much, or only too little."""
    if any(p.expected.shape != p.got.shape or p.expected.dtype.kind != "b" for p in wrong):
        return []
    if any(p.expected.ndim == 0 or p.is_list for p in wrong):  # answers to single questions
        return []
    if all((p.expected != p.got).all() for p in wrong):
        words = "True and False are exchanged, everywhere."
        return [Relation(words, "Does True say that a key is seen, or that it is hidden?")]
    expected = np.concatenate([p.expected.ravel() for p in wrong])
    got = np.concatenate([p.got.ravel() for p in wrong])
    if len(expected) < FEWEST:
        return []
    if not (expected & ~got).any():
        words = "Every True that should be there is there, and some more."
        return [Relation(words, "Which comparison lets them through?")]
    if not (got & ~expected).any():
        words = "Every True is right, and some are missing."
        return [Relation(words, "Which line of yours should set them?")]
    return []


def _asked_of_counts(words: str, question: str, wrong: list[Pair]) -> Relation:
    """Ask a question if the results are single numbers. The numbers of an array may be whose they should
    not be, or what the check has written there, and its own question asks about that."""
    return Relation(words, question if all(p.expected.ndim == 0 for p in wrong) else "")


def _zero(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    if np.any(got != 0):
        return None
    words = "The wrong numbers are all 0."
    return _asked_of_counts(
        words, "Where do these zeros come from, and what should be there?", wrong
    )


def _constant(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    if np.ptp(got) > 1e-9 * abs(got[0]):
        return None
    if (expected > got[0]).all() or (expected < got[0]).all():
        larger = "larger" if expected[0] > got[0] else "smaller"
        words = f"The wrong numbers are all {got[0]:.6g}, where the right ones are {larger}."
        return _asked_of_counts(words, "What should they grow with, and does it reach them?", wrong)
    words = f"The wrong numbers are all {got[0]:.6g}, whatever they should be."
    return _asked_of_counts(
        words, "Which argument should decide, and does not reach the result?", wrong
    )


def _factor(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    if (expected == 0).any() or len(np.unique(np.abs(expected))) < 2:
        return None
    ratios = got / expected
    factor = float(np.median(ratios))
    if not near(got, factor * expected).all() or np.abs(ratios / factor - 1).max() > 0.02:
        return None
    if math.isclose(factor, 1, rel_tol=EXACT):
        return None
    if math.isclose(factor, -1, rel_tol=EXACT):
        words = "The wrong numbers have the wrong sign, and are right but for that."
        return _asked_of_counts(words, "Which of two numbers do you take from which?", wrong)
    reading = next((r for f, r in READINGS.items() if math.isclose(factor, f, rel_tol=EXACT)), "")
    words = f"The wrong numbers are {factor:.4g} × the right ones{f': {reading}' * bool(reading)}."
    question = "In which unit is the result asked for?"
    if reading in ("twice", "half"):
        question = ""  # checks ask about these
    elif " unit" not in reading and " for " not in reading:
        question = "Which factor is missing, or there twice?"
    return Relation(words, question)


def _offset(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    offset = float(np.median(got - expected))
    if not near(got, expected + offset).all() or abs(offset) < 1e-3:
        return None
    largest = 100 if wrong[0].got.dtype.kind == "f" else 1e4
    if np.abs(expected).max() > largest * abs(offset) and abs(offset) > 1:
        return None  # lost among numbers that large
    amount = "too large" if offset > 0 else "too small"
    question = (
        "Which term does not belong, or is rounded?"
        if offset > 0
        else "What is left out, or rounded?"
    )
    return Relation(f"The wrong numbers are all {amount} by {abs(offset):.4g}.", question)


def _wrapped(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    if wrong[0].expected.dtype.kind == "f" or np.abs(expected).min() < 2**31:
        return None
    if np.any((expected - got) % 2**32) or np.abs(got).max() > 2**32:
        return None
    words = "The wrong numbers are what whole numbers of 32 bits keep of the right ones."
    return Relation(words, "In which dtype do you count?")


def _rounded(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> Relation | None:
    size = np.abs(expected)
    if (size < 0.05).mean() > 0.5:
        return None
    relative = np.abs(got - expected) / np.maximum(size, 0.05 * size.max())
    types = ROUNDING if wrong[0].expected.dtype.kind == "f" else {"float32": 2.0**-23}
    for dtype, step in types.items():
        if relative.max() <= step:
            if not _are_all(got, dtype) or _are_all(expected, dtype):
                return None
            words = (
                f"The wrong numbers are off by at most {relative.max():.1g} of themselves, as numbers "
                f"are that went through {dtype}."
            )
            return Relation(words, f"Which line turns them into {dtype}?")
    return None


def _are_all(numbers: np.ndarray, dtype: str) -> bool:
    """Tell whether a type can hold all these numbers."""
    import torch  # only here: whoever looks up what is judged already waits for no import of it

    numbers = torch.from_numpy(numbers)
    return torch.equal(numbers.to(getattr(torch, dtype)).double(), numbers)
