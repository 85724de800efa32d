"""Check vectors with hardly a range, or none: every step is above 0, and the numbers come back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.quantized_cache.rounding import (
    BACK,
    PARTS,
    back_of,
    case_of,
    errors,
    first_wrong,
    info_of,
    parts,
    quantize_case,
    rounding_of,
    widest_step,
    wrong_back,
)
from course.checks.recording import first_place, one_each

WITH_A_RANGE = "numbers with a range"
"""Names the one case that is not flat, so that its codes must count something; how exactly is asked
elsewhere."""


def draw_flat(seed: int) -> Challenge:
    """Draw zeros, one number again and again, vectors of one number, no vectors at all, and float16
    numbers whose steps are too small for float16, or nearly; at last vectors with a range."""
    rng = np.random.default_rng(seed)
    level = float(rng.uniform(0.5, 9))
    bits = iter([*rng.permutation([2, 4, 8, 8]).tolist(), 8, 8, 4, 8, 8])
    arrays = {
        "zeros": (np.zeros((2, 3, 4)), -1, "float32"),
        "equal numbers": (np.full((2, 3, 4), level), 1, "float32"),
        "equal negative numbers": (np.full((2, 3, 4), -level), -1, "float16"),
        "vectors of length 1": (rng.normal(size=(4, 1, 3)), 1, "float32"),
        "tiny numbers": (rng.uniform(-3e-6, 3e-6, (2, 3, 16)), -1, "float16"),
        "small numbers": (rng.uniform(-2e-3, 2e-3, (2, 3, 16)), -1, "float16"),
        "equal numbers in bfloat16": (np.full((2, 3), level), 1, "bfloat16"),
        "no vectors": (np.zeros((0, 5)), 1, "float32"),
        WITH_A_RANGE: (rng.normal(size=(2, 3, 16)), -1, "float32"),
    }
    cases = [
        {"name": name, **case_of(x, next(bits), dim, dtype)}
        for name, (x, dim, dtype) in arrays.items()
    ]
    return {"cases": cases}


def probe_there_and_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize and dequantize the numbers of each case."""
    results = []
    for case in challenge["cases"]:
        q = quantize_case(student, case)
        results.append({**parts(q), **back_of(student, q)})
    return {"cases": results}


@check(
    "quantize",
    "dequantize",
    draw=draw_flat,
    probe=probe_there_and_back,
    evidence=one_each(cases={**PARTS, **BACK}),
)
def flat_vectors_stay_finite(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Codes and what comes back are finite and right, and no step is below the smallest."""
    if wrong := first_wrong(challenge, evidence, _wrong_flat):
        return failed(wrong)
    return passed("Equal numbers come back as they were, and every step is above 0.")


def _wrong_flat(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with a case that has hardly a range, or none, if anything."""
    x, back, tiny = case["x"].astype(float), result["back"], info_of(case["dtype"]).tiny
    codes, scale, zero = (result[name].astype(float) for name in ("codes", "scale", "zero"))
    if not (scale >= tiny).all():
        question = "What is the range of numbers that are all the same, or nearly?"
        if scale.min() > 0:
            question = "Which is the smallest step that may be stored?"
        return (
            f"there are steps of {scale.min():.3g}; {case['dtype']} has full precision only from "
            f"{tiny:.3g} on. {question}"
        )
    if wrong := wrong_back(case, result, x.shape):
        return wrong
    if not np.isfinite(back).all():
        return (
            f"NaN or infinity came back (step {scale.flat[0]:.3g}). What is divided by what when all "
            f"numbers are the same?"
        )
    if not x.size:
        return None
    error, aside = errors(case, result)
    widest = widest_step(x, case["bits"], case["dim"], case["dtype"])
    limit = 2 if case["name"] == WITH_A_RANGE else 0.75
    near = np.broadcast_to(rounding_of(np.abs(zero) + scale * codes, case["dtype"]), x.shape)
    coded = zero + scale * codes
    at = first_place(~(np.abs(error) <= limit * widest + aside) | ~(np.abs(back - coded) <= near))
    if not at:
        return None
    step, start = (np.broadcast_to(part, x.shape)[at] for part in (scale, zero))
    question = "Which step divides, which one is stored, and which number does code 0 stand for?"
    if step > widest.min() or np.ptp(x) == 0:
        question = (
            "Which number does code 0 stand for when there is no range? Is every code from 0 on?"
        )
    if case["name"] == WITH_A_RANGE:
        question = (
            "Flat vectors agree, and this one has a range. Of which numbers is its step made?"
        )
    if not abs(back[at] - coded[at]) <= near[at]:
        question = f"zero + scale · code is {coded[at]:.4g}. What does dequantize make of it?"
    return (
        f"{x[at]:.4g} got code {result['codes'][at]} and came back as {back[at]:.4g} (step {step:.3g}, "
        f"zero {start:.4g}). {question}"
    )
