"""Relations of values: what the wrong numbers are of the right ones, wherever they lie."""

from __future__ import annotations

import math

import numpy as np

from course.checks.relations.pairs import Pair, near

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


def values(pairs: list[Pair]) -> list[str]:
    """Say what the wrong numbers of a field are of the right ones; [] where nothing is known."""
    wrong = [p for p in pairs if p.differs]
    if any(p.expected.shape != p.got.shape for p in wrong) or wrong[0].expected.dtype.kind == "b":
        return masks(wrong)
    expected = np.concatenate([p.expected[p.wrong].astype(np.float64) for p in wrong])
    got = np.concatenate([p.got[p.wrong].astype(np.float64) for p in wrong])
    lost = ~np.isfinite(got) & np.isfinite(expected)
    if lost.all():
        return ["The wrong numbers are all NaN or infinite."]
    if lost.any() or len(got) < FEWEST or len(np.unique(expected)) < 2:
        return []
    for say in (_zero, _constant, _wrapped, _factor, _rounded, _offset):
        if sentence := say(expected, got, wrong):
            return [sentence]
    return []


def masks(wrong: list[Pair]) -> list[str]:
    """Say how the wrong masks differ: opposites, or only too much, or only too little."""
    if any(p.expected.shape != p.got.shape or p.expected.dtype.kind != "b" for p in wrong):
        return []
    if all((p.expected != p.got).all() for p in wrong):
        return ["True and False are exchanged, everywhere."]
    expected = np.concatenate([p.expected.ravel() for p in wrong])
    got = np.concatenate([p.got.ravel() for p in wrong])
    if len(expected) < FEWEST:
        return []
    if not (expected & ~got).any():
        return [
            f"Every True that should be there is there, and {(got & ~expected).sum()} too many."
        ]
    if not (got & ~expected).any():
        return [f"Every True is right, and {(expected & ~got).sum()} are missing."]
    return []


def _zero(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    return "" if np.any(got != 0) else "The wrong numbers are all 0."


def _constant(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    if np.ptp(got) > 1e-9 * abs(got[0]):
        return ""
    if (expected > got[0]).all() or (expected < got[0]).all():
        larger = "larger" if expected[0] > got[0] else "smaller"
        return f"The wrong numbers are all {got[0]:.6g}, where the right ones are {larger}."
    return f"The wrong numbers are all {got[0]:.6g}, whatever they should be."


def _factor(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    if (expected == 0).any() or len(np.unique(np.abs(expected))) < 2:
        return ""
    ratios = got / expected
    factor = float(np.median(ratios))
    if not near(got, factor * expected).all() or np.abs(ratios / factor - 1).max() > 0.02:
        return ""
    if math.isclose(factor, 1, rel_tol=EXACT):
        return ""
    if math.isclose(factor, -1, rel_tol=EXACT):
        return "The wrong numbers have the wrong sign, and are right but for that."
    reading = next((r for f, r in READINGS.items() if math.isclose(factor, f, rel_tol=EXACT)), "")
    return f"The wrong numbers are {factor:.4g} × the right ones{f': {reading}' * bool(reading)}."


def _offset(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    offset = float(np.median(got - expected))
    if not near(got, expected + offset).all() or abs(offset) < 1e-3:
        return ""
    largest = 100 if wrong[0].got.dtype.kind == "f" else 1e4
    if np.abs(expected).max() > largest * abs(offset) and abs(offset) > 1:
        return ""  # lost among numbers that large
    amount = "too large" if offset > 0 else "too small"
    return f"The wrong numbers are all {amount} by {abs(offset):.4g}."


def _wrapped(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    if wrong[0].expected.dtype.kind == "f" or np.abs(expected).min() < 2**31:
        return ""
    if np.any((expected - got) % 2**32) or np.abs(got).max() > 2**32:
        return ""
    return "The wrong numbers are what whole numbers of 32 bits keep of the right ones."


def _rounded(expected: np.ndarray, got: np.ndarray, wrong: list[Pair]) -> str:
    size = np.abs(expected)
    if (size < 0.05).mean() > 0.5:
        return ""
    relative = np.abs(got - expected) / np.maximum(size, 0.05 * size.max())
    types = ROUNDING if wrong[0].expected.dtype.kind == "f" else {"float32": 2.0**-23}
    for dtype, step in types.items():
        if relative.max() <= step:
            return (
                f"The wrong numbers are off by at most {relative.max():.1g} of themselves, as numbers "
                f"are that went through {dtype}."
            )
    return ""
