"""Check numbers that become codes and come back: how far off, how many codes, flat vectors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.fast.quantized import BITS, Quantized

ROUNDING = 4
"""Roundings of the dtype that a right answer may be off, beside half a step: subtract, divide, multiply
and add are one each, in whatever order a style has them."""

Array = np.ndarray
TENSOR = (np.ndarray, str)
"""In the form of evidence: a tensor, or what stands in its place, in words."""
PARTS = {"form": str, "codes": TENSOR, "scale": TENSOR, "zero": TENSOR}
"""The form of what quantize returned, see `parts`."""


def dtype_of(case: Challenge) -> torch.dtype:
    """The dtype in which quantize is given a case's numbers. NumPy has no bfloat16: there they are
    float32 of the same values, and the case names the dtype."""
    return getattr(torch, case.get("dtype", case["x"].dtype.name))


def rounding_of(x: Array, dtype: torch.dtype | None = None) -> Array:
    """Bound what rounding adds to an error, for vectors with these largest numbers.

    Args:
        dtype: in which is rounded; x's own where none is given.
    """
    info = torch.finfo(dtype or getattr(torch, x.dtype.name))
    return ROUNDING * info.eps * (np.abs(x).astype(float) + info.tiny)


def widest_step(x: Array, bits: int, axis: int | tuple[int, ...]) -> Array:
    """Compute the largest step that a vector needs: that of a grid around 0, which loses one code for
    being symmetric. An asymmetric grid has a smaller one."""
    return 2 * np.abs(x).astype(float).max(axis=axis, keepdims=True) / (2**bits - 2)


def draw_vectors(seed: int) -> Challenge:
    """Draw numbers of three dimensions for 2, 4 and 8 bits: vectors along `dim` that differ in size and
    in place, some of them on one side of 0; and many in bfloat16, whose steps are far from exact."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, dim in zip(BITS, rng.permutation([-1, -2, -3, 0, 1, 2])[:3].tolist(), strict=True):
        shape = (3, 4, 5)
        kept = tuple(1 if axis == dim % 3 else n for axis, n in enumerate(shape))
        size = 10 ** rng.uniform(-2, 2, kept)
        x = size * (rng.normal(size=shape) + rng.choice([-4, 0, 0, 4], kept))
        cases.append({"x": x.astype(np.float32), "bits": bits, "dim": dim})
    rough = torch.from_numpy(rng.normal(size=(20, 6, 10))).bfloat16().float().numpy()
    cases.append({"x": rough, "bits": 8, "dim": int(rng.choice([1, -2])), "dtype": "bfloat16"})
    return {"cases": cases}


def as_array(value: Any) -> Array | str:
    """Turn a tensor into an array; of anything else, say what it is."""
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def quantize_case(student: SimpleNamespace, case: Challenge) -> Any:
    """Call the student's quantize on a copy of a case's numbers."""
    x = torch.from_numpy(case["x"].copy()).to(dtype_of(case))
    return student.quantize(x, case["bits"], case["dim"])


def parts(q: Any) -> Evidence:
    """Turn what quantize returned into plain data; of anything but a Quantized, say what it is."""
    if not isinstance(q, Quantized):
        return {"form": f"a {type(q).__name__}", "codes": "", "scale": "", "zero": ""}
    arrays = {name: as_array(getattr(q, name)) for name in ("codes", "scale", "zero")}
    return {"form": "", **arrays}


def probe_there_and_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize and dequantize the numbers of each case."""
    results = []
    for case in challenge["cases"]:
        q = quantize_case(student, case)
        stored = parts(q)
        if dtype_of(case) == torch.bfloat16 and isinstance(q, Quantized):
            # In float32, so that the error is that of the codes and not of this sum.
            q = q._replace(scale=q.scale.float(), zero=q.zero.float())
        results.append({**stored, "back": as_array(student.dequantize(q))})
    return {"results": results}


def evidence_there_and_back(challenge: Challenge) -> Any:
    """The form of what `probe_there_and_back` records."""
    return {"results": [{**PARTS, "back": TENSOR}] * len(challenge["cases"])}


def describe(case: Challenge) -> str:
    """The shape, dtype, bits and dim of a case, in words."""
    x = case["x"]
    dtype = case.get("dtype", x.dtype)
    return f"x {x.shape} of {dtype}, {case['bits']} bits, dim={case['dim']}"


def wrong_form(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with the types, shapes and dtypes of a result, if anything."""
    if result["form"]:
        return f"{describe(case)}: quantize gave {result['form']}; wanted is a Quantized."
    for name in ("codes", "scale", "zero", *(["back"] if "back" in result else [])):
        if not isinstance(result[name], np.ndarray):
            return f"{describe(case)}: {name} is {result[name]}; wanted is a tensor."
    shape = case["x"].shape
    for name in ("codes", "back"):
        if name in result and result[name].shape != shape:
            return f"{describe(case)}: {name} have shape {result[name].shape}, wanted is {shape}."
    steps = tuple(1 if axis == case["dim"] % 3 else n for axis, n in enumerate(shape))
    for name in ("scale", "zero"):
        if result[name].shape != steps:
            return (
                f"{describe(case)}: {name} has shape {result[name].shape}; one number for each vector "
                f"along the dim would be {steps}. Which numbers share a step?"
            )
        if result[name].dtype != case["x"].dtype:
            return f"{describe(case)}: {name} is {result[name].dtype}, wanted is the dtype of x."
        if not np.isfinite(result[name]).all():
            return (
                f"{describe(case)}: {name} holds NaN or infinity. What is divided by what when all "
                f"numbers of a vector are the same?"
            )
    return None


def judge_error(challenge: Challenge, evidence: Evidence) -> Verdict:
    """No number is off by more than half a step, and no step is wider than it must be."""
    worst = 0.0
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        problem = wrong_form(case, result) or too_far(case, result) or too_wide(case, result)
        if problem:
            return failed(problem)
        if dtype_of(case) != torch.bfloat16:  # which itself rounds to more than a step of 8 bits
            error = np.abs(result["back"].astype(float) - case["x"])
            worst = max(worst, float((error / result["scale"].astype(float)).max()))
    return passed(
        f"2, 4 and 8 bits: no number is off by more than {worst:.2f} of its step (in bfloat16, its "
        f"rounding aside)."
    )


def too_far(case: Challenge, result: Evidence) -> str | None:
    """Find the first number that is off by more than half of the step that the answer itself gives."""
    x, back, scale = case["x"], result["back"].astype(float), result["scale"].astype(float)
    error = np.abs(back - x)
    largest = np.abs(x).max(axis=case["dim"], keepdims=True)
    aside = rounding_of(largest, dtype_of(case))
    bad = np.argwhere(~(error <= scale / 2 + aside))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    step = np.broadcast_to(scale, x.shape)[place]
    off = error[place] / step if step else np.inf
    one_sided = bool((back - x <= aside).all() or (back - x >= -aside).all())
    top = np.broadcast_to(x.max(axis=case["dim"], keepdims=True), x.shape)[place]
    if not np.isfinite(back[place]):
        question = "What is divided by what there?"
    elif x[place] == top and result["codes"][place] == 0:
        question = "The largest number has code 0. Which code was it before it became a byte?"
    elif one_sided and off <= 1.01:
        question = "All errors have the same sign. Which whole number is the nearest one?"
    else:
        question = "From which numbers was this step made, and what does code 0 stand for?"
    return (
        f"{describe(case)}: x{list(place)} = {x[place]:.4g} came back as {back[place]:.4g}, off by "
        f"{off:.3g} of its step {step:.3g}; half a step is the limit. {question}"
    )


def too_wide(case: Challenge, result: Evidence) -> str | None:
    """Find the first step that is wider than this many bits need."""
    most = widest_step(case["x"], case["bits"], case["dim"])
    scale = result["scale"].astype(float)
    bad = np.argwhere(~(scale <= most * (1 + ROUNDING * torch.finfo(dtype_of(case)).eps)))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    return (
        f"{describe(case)}: scale{list(place)} is {scale[place]:.3g}, but {2 ** case['bits']} codes "
        f"reach over this vector in steps of {most[place]:.3g}. How many of your codes are used?"
    )


half_a_step_at_most = Check(
    "half_a_step_at_most",
    ("quantize", "dequantize"),
    draw_vectors,
    probe_there_and_back,
    judge_error,
    evidence=evidence_there_and_back,
)


def probe_codes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize all vectors at once, and the first and the last of them alone."""
    results, alone = [], []
    for case in challenge["cases"]:
        results.append(parts(quantize_case(student, case)))
        ends = [np.take(case["x"], [at], axis=(case["dim"] + 1) % 3) for at in (0, -1)]
        alone.append([parts(quantize_case(student, {**case, "x": x})) for x in ends])
    return {"results": results, "alone": alone}


def evidence_of_codes(challenge: Challenge) -> Any:
    """The form of what `probe_codes` records."""
    n = len(challenge["cases"])
    return {"results": [PARTS] * n, "alone": [[PARTS, PARTS]] * n}


def judge_codes(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Codes are bytes of so many bits, and those of a vector depend on no other vector."""
    for case, result, alone in zip(
        challenge["cases"], evidence["results"], evidence["alone"], strict=True
    ):
        problem = wrong_form(case, result) or wrong_codes(case, result["codes"])
        if problem:
            return failed(problem)
        for at, single in zip((0, -1), alone, strict=True):
            other = (case["dim"] + 1) % 3
            small = {**case, "x": np.take(case["x"], [at], axis=other)}
            if problem := wrong_form(small, single):
                return failed(problem)
            if (single["codes"] != np.take(result["codes"], [at], axis=other)).any():
                return failed(
                    f"{describe(case)}: vectors that are quantized alone, {small['x'].shape}, get other "
                    f"codes than among the rest. Which numbers may a code depend on?"
                )
    return passed("Codes are bytes, use no more than their bits, and each vector has its own step.")


def wrong_codes(case: Challenge, codes: Array) -> str | None:
    """Say what is wrong with codes of the right shape, if anything."""
    if codes.dtype != np.uint8:
        return (
            f"{describe(case)}: the codes are {codes.dtype}, {codes.dtype.itemsize} bytes each; wanted "
            f"is uint8. How many bytes does a code need?"
        )
    if codes.max() >= 2 ** case["bits"]:
        return (
            f"{describe(case)}: codes run up to {codes.max()}; {case['bits']} bits end at "
            f"{2 ** case['bits'] - 1}. What becomes of the largest number?"
        )
    along = np.moveaxis(codes, case["dim"], -1).reshape(-1, codes.shape[case["dim"]])
    if all(len(np.unique(row)) == 1 for row in along):
        return (
            f"{describe(case)}: all codes of a vector are the same. What tells its numbers apart?"
        )
    return None


codes_fit_their_bits = Check(
    "codes_fit_their_bits",
    ("quantize",),
    draw_vectors,
    probe_codes,
    judge_codes,
    evidence=evidence_of_codes,
)


def draw_flat(seed: int) -> Challenge:
    """Draw zeros, one number again and again, vectors of one number, and float16 numbers whose steps are
    too small for float16."""
    rng = np.random.default_rng(seed)
    level = float(rng.uniform(0.5, 9))
    bits = rng.permutation([2, 4, 8, 8]).tolist()
    tiny = rng.uniform(-3e-6, 3e-6, (2, 3, 16)).astype(np.float16)
    arrays = {
        "zeros": (np.zeros((2, 3, 4), np.float32), -1),
        "one number": (np.full((2, 3, 4), level, np.float32), 1),
        "one negative number": (np.full((2, 3, 4), -level, np.float16), -1),
        "vectors of length 1": (rng.normal(size=(4, 1, 3)).astype(np.float32), 1),
        "tiny numbers": (tiny, -1),
    }
    cases = [
        {"name": name, "x": x, "bits": [*bits, 8][i], "dim": dim}
        for i, (name, (x, dim)) in enumerate(arrays.items())
    ]
    return {"cases": cases}


def judge_flat(challenge: Challenge, evidence: Evidence) -> Verdict:
    """What comes back is finite and right, and every step is above 0."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        problem = wrong_form(case, result)
        if problem:
            return failed(f"{case['name'].capitalize()}. {problem}")
        x, back, scale = (a.astype(float) for a in (case["x"], result["back"], result["scale"]))
        if not np.isfinite(back).all():
            return failed(
                f"{case['name'].capitalize()}: {describe(case)}. NaN or infinity came back (step "
                f"{scale.flat[0]:.3g}). What is divided by what when all numbers are the same?"
            )
        if not (scale > 0).all():
            return failed(
                f"{case['name'].capitalize()}: {describe(case)}. There are steps of {scale.min():.3g}; "
                f"a step must be above 0. What is the smallest step that {case['x'].dtype} can hold?"
            )
        half = scale / 2 if case["name"] == "tiny numbers" else 0 * scale
        if not (np.abs(back - x) <= half + rounding_of(case["x"])).all():
            at = np.unravel_index(np.abs(back - x).argmax(), x.shape)
            return failed(
                f"{case['name'].capitalize()}: {describe(case)}. {x[at]:.4g} came back as {back[at]:.4g} "
                f"(step {np.broadcast_to(scale, x.shape)[at]:.3g}). Which step was used to divide, and "
                f"which one is stored?"
            )
    return passed("Zeros, constants, single numbers and tiny ones come back, all finite.")


flat_vectors_stay_finite = Check(
    "flat_vectors_stay_finite",
    ("quantize", "dequantize"),
    draw_flat,
    probe_there_and_back,
    judge_flat,
    evidence=evidence_there_and_back,
)
