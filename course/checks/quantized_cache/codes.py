"""Check that codes are bytes of so many bits, and that each vector has its own step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.quantized_cache.rounding import (
    PARTS,
    describe,
    draw_vectors,
    errors,
    first_wrong,
    parts,
    quantize_case,
    widest_step,
    wrong_form,
)
from course.checks.recording import first_place

STEPS_OFF = 2
"""Steps by which a code may be off: half a step is asked elsewhere, but a code must count something."""


def draw_few_vectors(seed: int) -> Challenge:
    """Draw the float32 vectors of `draw_vectors`, and those of float64."""
    cases = draw_vectors(seed)["cases"]
    return {"cases": [case for case in cases if case["dtype"] in ("float32", "float64")]}


def ends_of(case: Challenge, array: np.ndarray) -> list[np.ndarray]:
    """Take the first and the last vectors of an array; of one vector, nothing."""
    other = (case["dim"] + 1) % array.ndim
    return [np.take(array, [at], axis=other) for at in (0, -1)] if array.ndim > 1 else []


def probe_codes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize all vectors at once, and the first and the last of them alone."""
    results, alone = [], []
    for case in challenge["cases"]:
        results.append(parts(quantize_case(student, case)))
        ends = ends_of(case, case["x"])
        alone.append([parts(quantize_case(student, {**case, "x": x})) for x in ends])
    return {"cases": results, "alone": alone}


def codes_form(challenge: Challenge) -> Evidence:
    alone = [[PARTS] * len(ends_of(case, case["x"])) for case in challenge["cases"]]
    return {"cases": [PARTS] * len(alone), "alone": alone}


@check("quantize", draw=draw_few_vectors, probe=probe_codes, evidence=codes_form)
def codes_fit_their_bits(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Codes are bytes of so many bits that count steps, and those of a vector depend on no other."""
    if wrong := first_wrong(challenge, evidence, _wrong_codes):
        return failed(wrong)
    results = zip(challenge["cases"], evidence["cases"], evidence["alone"], strict=True)
    for case, among, alone in results:
        ends = ends_of(case, case["x"]), ends_of(case, among["codes"])
        for x, codes, single in zip(*ends, alone, strict=True):
            small = {**case, "x": x}
            if wrong := wrong_form(small, single):
                return failed(f"{describe(small)}: {wrong}")
            if (single["codes"] != codes).any():
                return failed(
                    f"{describe(case)}: vectors that are quantized alone, {x.shape}, get other codes "
                    f"than among the rest. Which numbers may a code depend on?"
                )
    return passed("Codes are bytes, use no more than their bits, and each vector has its own step.")


def _wrong_codes(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with codes of the right shape, if anything."""
    codes = result["codes"]
    if codes.dtype != np.uint8:
        return (
            f"the codes are {result['dtypes'][0]}, {codes.dtype.itemsize} byte(s) each; wanted is "
            f"uint8. Which whole numbers does a code have to be, and which type holds just those of 8 "
            f"bits?"
        )
    if codes.max() >= 2 ** case["bits"]:
        return (
            f"codes run up to {codes.max()}; {case['bits']} bits end at {2 ** case['bits'] - 1}. What "
            f"becomes of the largest number, and of one below code 0?"
        )
    if not np.ptp(codes, axis=case["dim"]).any():
        return "all codes of a vector are the same. What tells its numbers apart?"
    error, aside = errors(case, result)
    widest = np.broadcast_to(
        widest_step(case["x"], case["bits"], case["dim"], case["dtype"]), error.shape
    )
    if at := first_place(~(np.abs(error) <= STEPS_OFF * widest + aside)):
        return (
            f"x{list(at)} = {case['x'][at]:.4g} has code {codes[at]}, which stands for "
            f"{case['x'][at] - error[at]:.4g} by its scale and zero. That is off by more than "
            f"{STEPS_OFF} of the widest steps that {case['bits']} bits need, {widest[at]:.3g}. "
            f"What does a code count, and from where?"
        )
    return None
