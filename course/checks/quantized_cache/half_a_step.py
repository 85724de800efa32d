"""Check that no number is off by more than half a step, and that codes become numbers again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.quantized_cache.rounding import (
    ARRAYS,
    BACK,
    PARTS,
    ROUNDING,
    back_of,
    draw_vectors,
    errors,
    first_wrong,
    info_of,
    parts,
    quantize_case,
    rounding_of,
    widest_step,
    wrong_back,
)
from course.checks.recorder import given
from course.checks.recording import Array, first_place
from course.fast.quantized import Quantized

SLACK = 0.02
"""The part of a step by which one may be wider or narrower before it is of neither grid."""


def probe_numbers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize the numbers of each case; and dequantize codes that were drawn."""
    results = [parts(quantize_case(student, case)) for case in challenge["cases"]]
    backs = []
    for case in challenge["coded"]:
        dtype = getattr(torch, case["dtype"])
        arrays = (given(case["codes"]), given(case["scale"], dtype), given(case["zero"], dtype))
        backs.append(back_of(student, Quantized(*arrays, case["bits"])))
    return {"cases": results, "coded": backs}


def numbers_form(challenge: Challenge) -> Evidence:
    return {"cases": [PARTS] * len(challenge["cases"]), "coded": [BACK] * len(challenge["coded"])}


@check(
    "quantize",
    "dequantize",
    draw=draw_vectors,
    probe=probe_numbers,
    evidence=numbers_form,
)
def half_a_step_at_most(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Array, Array, Array], Array]
) -> Verdict:
    """No number is off by more than half a step, no step is wider than it must be, and codes become the
    numbers of `truth`: (codes, scale, zero) to what they stand for."""
    if wrong := first_wrong(challenge, evidence, _too_far, _too_wide):
        return failed(wrong)
    for case, back in zip(challenge["coded"], evidence["coded"], strict=True):
        right = truth(*(case[name] for name in ARRAYS))
        if wrong := wrong_back(case, back, right.shape) or _wrong_code(case, back["back"], right):
            return failed(f"Codes {case['codes'].shape} with steps of {case['dtype']}: {wrong}")
    worst = max(
        np.abs(errors(case, result)[0] / result["scale"]).max()
        for case, result in zip(challenge["cases"], evidence["cases"], strict=True)
        if case["dtype"] == "float32"
    )
    return passed(f"2, 4 and 8 bits: no number is off by more than {worst:.2f} of its step.")


def _too_far(case: Challenge, result: Evidence) -> str | None:
    """Find the first number that is off by more than half of the step that the answer itself gives."""
    scale = result["scale"].astype(float)
    if not (scale > 0).all():
        return f"there is a step of {scale.min():.3g}; wanted are steps above 0."
    error, aside = errors(case, result)
    if not (at := first_place(~(np.abs(error) <= scale / 2 + aside))):
        return None
    step = np.broadcast_to(scale, error.shape)[at]
    return (
        f"x{list(at)} = {case['x'][at]:.4g} has code {result['codes'][at]}, which stands for "
        f"{case['x'][at] - error[at]:.4g}: off by {abs(error[at]) / step:.3g} of the step {step:.3g} "
        f"that is stored, half a step is the limit. "
        f"{_ask_about_errors(case, result['codes'], at, error / scale)}"
    )


def _ask_about_errors(case: Challenge, codes: Array, at: tuple[int, ...], off: Array) -> str:
    """Ask the question that points at the cause.

    Args:
        at: the first number that is too far off.
        off: how far x lies above what its code stands for, in steps.
    """
    n_codes, x, axis = 2 ** case["bits"], case["x"].astype(float), case["dim"] % case["x"].ndim
    low, high = off.min(), off.max()
    little = 0.5 + 2 * (n_codes - 1) * info_of(case["dtype"]).eps
    if case["dtype"] in ("float16", "bfloat16") and max(-low, high) <= little:
        return f"{case['dtype']} keeps few digits of a step. {_ask_about_few_digits(case, codes)}"
    if low > -0.01 and high <= 1.01:
        return (
            "Every number lies above what its code stands for: codes were cut off, not rounded. What "
            "does .to(torch.uint8) make of 2.9?"
        )
    if low >= -1.01 and high < 0.01:
        return (
            "No code is below its number: always rounded up. Which whole number is the nearest one?"
        )
    if max(-low, high) <= 1.01 and (off * x >= -0.01 * np.abs(x)).all():
        return (
            "Every number came back nearer to 0: codes were cut off, not rounded. What does .to() make "
            "of 2.9 and of -2.9?"
        )
    across = tuple(slice(None) if a == axis else n for a, n in enumerate(at))  # its vector
    together = np.ptp(off[across]) <= 1.01
    if x[at] == x[across].max():
        if codes[at] == 0:
            return "The largest number has code 0. Which code was it before it became a byte?"
        if not together:
            return (
                f"This is its vector's largest number. How many steps lie between {n_codes} codes?"
            )
    if together and abs(middle := np.median(off[across])) > 0.3:
        return (
            f"All numbers of this vector are off by the same, about {middle:.3g} steps. What does code "
            f"0 stand for?"
        )
    return "From which numbers was this step made, and what does code 0 stand for?"


def _ask_about_few_digits(case: Challenge, codes: Array) -> str:
    """Ask about the step where the codes are those of the range over 2^bits - 1, unrounded."""
    x, top = case["x"].astype(float), 2 ** case["bits"] - 1
    low, reach = x.min(case["dim"], keepdims=True), np.ptp(x, axis=case["dim"], keepdims=True)
    if (np.abs((x - low) * top - codes * reach) <= 0.501 * reach).all():
        return "These codes count steps that were not rounded to it yet. Which step is stored?"
    return "In which dtype did you subtract and divide, and by which step?"


def _too_wide(case: Challenge, result: Evidence) -> str | None:
    """Find the first step that is wider than this many bits need."""
    widest = widest_step(case["x"], case["bits"], case["dim"], case["dtype"])
    scale = result["scale"].astype(float)
    near = ROUNDING * max(info_of(case["dtype"]).eps, info_of("float32").eps)
    if not (at := first_place(~(scale <= widest * (1 + near)))):
        return _of_neither_grid(case, scale)
    return (
        f"scale{list(at)} is {scale[at]:.3g}, but {2 ** case['bits']} codes reach over this vector in "
        f"steps of {widest[at]:.3g} at most. Of which numbers is your step made, and how many of your "
        f"codes are used?"
    )


def _of_neither_grid(case: Challenge, scale: Array) -> str | None:
    """Find the first step that is wider than the range needs, and narrower than a grid around 0 needs."""
    x, axis, top = case["x"].astype(float), case["dim"], 2 ** case["bits"] - 1
    reach = np.maximum(np.ptp(x, axis=axis, keepdims=True) / top, info_of(case["dtype"]).tiny)
    around_0 = 2 * np.abs(x).max(axis=axis, keepdims=True) / top
    if not (at := first_place((scale > reach * (1 + SLACK)) & (scale < around_0 * (1 - SLACK)))):
        return None
    return (
        f"scale{list(at)} is {scale[at]:.3g}; from the lowest to the highest number of this vector, "
        f"{top} steps are {reach[at]:.3g} each, and around 0 {around_0[at]:.3g}. Where do your codes "
        f"begin and end, and by how many steps is what lies between divided?"
    )


def _wrong_code(case: Challenge, back: Array, right: Array) -> str | None:
    """Find the first drawn code of which dequantize made another number than `right`."""
    codes, scale, zero = (case[name].astype(float) for name in ARRAYS)
    reach = np.abs(zero) + scale * 2 ** case["bits"]
    near = np.maximum(rounding_of(reach, case["dtype"]), 1e-6 * reach)
    bad = ~(np.abs(back.astype(float) - right) <= near)
    if not (at := first_place(bad)):
        return None
    step, start = (np.broadcast_to(part, codes.shape)[at] for part in (scale, zero))
    code = int(codes[at])
    question = "What does code 0 stand for, and how far from there is the next code?"
    if code >= 2 ** (case["bits"] - 1) and not bad.all():
        question = f"Smaller codes come back right. What becomes of {code} on its way?"
    return (
        f"code {code}, scale {step:.4g}, zero {start:.4g} became {back[at]:.4g}; it stands for "
        f"{right[at]:.4g}. {question}"
    )
