"""Check numbers that become codes: how far off they are, how many codes there are, flat vectors; and
codes that become numbers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorder import given
from course.fast.quantized import BITS, Quantized

ROUNDING = 4
"""Roundings that a right answer may be off, beside half a step: subtract, divide, multiply and add are
one each, in whatever order a style has them."""

Array = np.ndarray
TENSOR = (np.ndarray, str)
"""In the form of evidence: a tensor, or what stands in its place, in words."""
PARTS = {
    "form": str,
    "codes": TENSOR,
    "scale": TENSOR,
    "zero": TENSOR,
    "dtypes": [str] * 3,
    "bits": (int, str),
}
"""The form of what quantize returned, see `parts`."""


# --- cases, and what came back -------------------------------------------------------------------


def case_of(x: Any, bits: int, dim: int, dtype: str = "float32") -> Challenge:
    """Make a case: numbers that `dtype` can hold, for quantize. NumPy has no bfloat16: there they are
    float32 of the same values."""
    held = torch.as_tensor(np.asarray(x)).to(getattr(torch, dtype))
    numbers = (held.float() if dtype == "bfloat16" else held).numpy()
    return {"x": numbers, "dtype": dtype, "bits": int(bits), "dim": int(dim)}


def draw_vectors(seed: int) -> Challenge:
    """Draw numbers for quantize and codes for dequantize.

    Numbers: of three dimensions for 2, 4 and 8 bits, in vectors that differ in size and in place, some
    on one side of 0; many in float16 and bfloat16, whose steps are far from exact; as far apart as
    float16 goes; very small ones; a long vector, of which only the end reaches far; and the
    first case with other signs.
    """
    rng = np.random.default_rng(seed)
    dims = rng.permutation([-1, -2, -3, 0, 1, 2])[:3]
    cases = [draw_case(rng, (3, 4, 5), bits, dim) for bits, dim in zip(BITS, dims, strict=True)]
    for dtype in rng.permutation(["float16", "bfloat16"]).tolist():
        cases.append(case_of(rng.normal(size=(20, 6, 10)), 8, rng.choice([1, -2]), dtype))
    wide = rng.uniform(-6e4, 6e4, (2, 5, 3))
    wide[:, :2] = [[[-6e4]], [[6e4]]]
    long = rng.normal(size=(int(rng.integers(4100, 4400)), 1))
    long[-3:] *= 20
    cases += [
        case_of(wide, rng.choice(BITS), 1, "float16"),
        case_of(rng.normal(size=(2, 3, 4)), rng.choice(BITS), -1, "float64"),
        case_of(rng.normal(size=(2, 6)) * 10 ** rng.uniform(-12, -9), rng.choice(BITS), 1),
        case_of(rng.normal(size=7), 4, 0),
        case_of(long, 8, 0),
        {**cases[0], "x": -cases[0]["x"]},
    ]
    return {"cases": cases, "coded": draw_coded(rng)}


def draw_case(
    rng: np.random.Generator, shape: tuple[int, ...], bits: int, dim: int, dtype: str = "float32"
) -> Challenge:
    """Draw vectors along `dim` that differ in size and in place, some of them on one side of 0."""
    kept = tuple(1 if axis == dim % len(shape) else n for axis, n in enumerate(shape))
    size = 10 ** rng.uniform(-2, 2, kept)
    x = size * (rng.normal(size=shape) + rng.choice([-4, 0, 0, 4], kept))
    return case_of(x, bits, dim, dtype)


def draw_coded(rng: np.random.Generator) -> list[Challenge]:
    """Draw codes, scales and zeros that no quantize has made, in each dtype; two of one shape."""
    cases = []
    for bits, dtype in zip((2, 4, 8, 8), ("float32", "float16", "float32", "float64"), strict=True):
        dim = int(rng.integers(0, 3))
        steps = tuple(1 if axis == dim else n for axis, n in enumerate((2, 3, 4)))
        codes = rng.integers(0, 2**bits, (2, 3, 4)).astype(np.uint8)
        codes.flat[int(rng.integers(24))] = 2**bits - 1
        scale = case_of(rng.uniform(0.1, 1, steps), bits, dim, dtype)["x"]
        zero = case_of(rng.normal(0, 9, steps), bits, dim, dtype)["x"]
        cases.append({"codes": codes, "scale": scale, "zero": zero, "bits": bits, "dtype": dtype})
    return cases


def as_array(value: Any) -> Array | str:
    """Turn a tensor into an array; of anything else, say what it is."""
    if not isinstance(value, torch.Tensor):
        return in_words(value)
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def dtype_of(value: Any) -> str:
    """Name the dtype of a tensor; "" of anything else."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def quantize_case(student: SimpleNamespace, case: Challenge) -> Any:
    """Call the student's quantize on a case's numbers."""
    x = given(case["x"], getattr(torch, case["dtype"]))
    return student.quantize(x, case["bits"], case["dim"])


def parts(q: Any) -> Evidence:
    """Turn what quantize returned into plain data; of anything but a Quantized, say what it is."""
    if not isinstance(q, Quantized):
        nothing = dict.fromkeys(("codes", "scale", "zero"), "")
        return {"form": in_words(q), **nothing, "dtypes": [""] * 3, "bits": ""}
    arrays = {name: as_array(getattr(q, name)) for name in ("codes", "scale", "zero")}
    bits = q.bits if type(q.bits) is int else in_words(q.bits)
    return {"form": "", **arrays, "dtypes": [dtype_of(part) for part in q[:3]], "bits": bits}


def is_as_it_was(q: Any, before: Evidence) -> bool:
    """Tell whether a Quantized still is what `parts` saw."""
    now = parts(q)
    return all(np.array_equal(now[name], before[name]) for name in ("codes", "scale", "zero"))


# --- what is wrong with one case -----------------------------------------------------------------


def describe(case: Challenge) -> str:
    """The shape, dtype, bits and dim of a case, in words."""
    return f"x {case['x'].shape} of {case['dtype']}, {case['bits']} bits, dim={case['dim']}"


def wrong_form(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with the types, shapes and dtypes of what quantize returned, if anything."""
    if result["form"]:
        return f"{describe(case)}: quantize gave {result['form']}; wanted is a Quantized."
    shape = case["x"].shape
    steps = tuple(1 if axis == case["dim"] % len(shape) else n for axis, n in enumerate(shape))
    for name, wanted in (("codes", shape), ("scale", steps), ("zero", steps)):
        if not isinstance(result[name], np.ndarray):
            return f"{describe(case)}: {name} is {result[name]}; wanted is a tensor."
        if result[name].shape != wanted:
            return (
                f"{describe(case)}: {name} has shape {result[name].shape}, wanted is {wanted}: codes "
                f"as x, one scale and one zero for each vector along the dim. Which numbers share a "
                f"step?"
            )
    for name, dtype in zip(("scale", "zero"), result["dtypes"][1:], strict=True):
        if dtype != case["dtype"]:
            return (
                f"{describe(case)}: {name} is {dtype}, wanted is the dtype of x, {case['dtype']}."
            )
        if not np.isfinite(result[name]).all():
            return f"{describe(case)}: {name} holds NaN or infinity. {ask_about_infinity(case)}"
    if result["bits"] != case["bits"]:
        return f"{describe(case)}: the Quantized says {result['bits']} bits. Whose bits are these?"
    return None


def ask_about_infinity(case: Challenge) -> str:
    """Ask for the cause of a number that is none."""
    low, high = case["x"].min(initial=0), case["x"].max(initial=0)
    if float(high) - float(low) > torch.finfo(getattr(torch, case["dtype"])).max:
        return f"From {low:.0f} to {high:.0f}: how far is that, and can {case['dtype']} say so?"
    return "What is divided by what when all numbers of a vector are the same?"


def widest_step(x: Array, bits: int, axis: int | tuple[int, ...]) -> Array:
    """Bound the step that a vector needs, by that of a grid around 0 that leaves one code unused."""
    return 2 * np.abs(x).astype(float).max(axis=axis, keepdims=True) / (2**bits - 2)


def rounding_of(x: Array, dtype: str = "float32") -> Array:
    """Bound what rounding in a dtype adds to an error, for vectors with these largest numbers."""
    info = torch.finfo(getattr(torch, dtype))
    return ROUNDING * info.eps * (np.abs(x).astype(float) + info.tiny)


def errors(case: Challenge, result: Evidence) -> tuple[Array, Array]:
    """How far x lies above what its code stands for by the step and the zero that are stored; and what
    rounding may add: float32's, and for a vector's lowest and highest code that of storing both."""
    x, codes, scale, zero = (
        part.astype(float) for part in (case["x"], *(result[n] for n in ("codes", "scale", "zero")))
    )
    top, axis = 2 ** case["bits"] - 1, case["dim"]
    aside = np.broadcast_to(rounding_of(np.abs(x).max(axis=axis, keepdims=True)), x.shape)
    eps = torch.finfo(getattr(torch, case["dtype"])).eps
    ends = (codes == codes.min(axis, keepdims=True)) | (codes == codes.max(axis, keepdims=True))
    return (x - zero) - scale * codes, aside + ends * eps * (np.abs(zero) + top * scale)


def too_far(case: Challenge, result: Evidence) -> str | None:
    """Find the first number that is off by more than half of the step that the answer itself gives."""
    scale = result["scale"].astype(float)
    if not (scale > 0).all():
        return f"{describe(case)}: there is a step of {scale.min():.3g}; wanted are steps above 0."
    error, aside = errors(case, result)
    bad = np.argwhere(~(np.abs(error) <= scale / 2 + aside))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    step = np.broadcast_to(scale, error.shape)[place]
    return (
        f"{describe(case)}: x{list(place)} = {case['x'][place]:.4g} has code {result['codes'][place]}, "
        f"which stands for {case['x'][place] - error[place]:.4g}: off by {abs(error[place]) / step:.3g} "
        f"of the step {step:.3g} that is stored, half a step is the limit. "
        f"{ask_about_errors(case, result, place, error / scale)}"
    )


def ask_about_errors(case: Challenge, result: Evidence, place: tuple, off: Array) -> str:
    """Ask the question that points at the cause.

    Args:
        place: of the first number that is too far off.
        off: how far x lies above what its code stands for, in steps.
    """
    codes, top = result["codes"], 2 ** case["bits"] - 1
    eps = torch.finfo(getattr(torch, case["dtype"])).eps
    x, (least, most) = case["x"].astype(float), (off.min(), off.max())
    if case["dtype"] in ("float16", "bfloat16") and max(-least, most) <= 0.5 + 2 * top * eps:
        return (
            f"{case['dtype']} keeps few digits of a step. In which dtype did you subtract and divide, "
            f"and by the step that is stored or by the one before?"
        )
    if least > -0.01 and most <= 1.01:
        return (
            "Every number lies above what its code stands for: codes were cut off, not rounded. What "
            "does .to(torch.uint8) make of 2.9?"
        )
    if least >= -1.01 and most < 0.01:
        return (
            "No code is below its number: always rounded up. Which whole number is the nearest one?"
        )
    if np.abs(off).max() <= 1.01 and (off * x >= -0.01 * np.abs(x)).all():
        return (
            "Every number came back nearer to 0: codes were cut off, not rounded. What does .to() make "
            "of 2.9 and of -2.9?"
        )
    if x[place] == np.broadcast_to(x.max(case["dim"], keepdims=True), x.shape)[place]:
        if codes[place] == 0:
            return "The largest number has code 0. Which code was it before it became a byte?"
        return f"This is its vector's largest number. How many steps lie between {top + 1} codes?"
    axis = case["dim"] % x.ndim
    vector = np.moveaxis(off, axis, -1)[tuple(n for a, n in enumerate(place) if a != axis)]
    if vector.max() - vector.min() <= 1.01 and abs(np.median(vector)) > 0.3:
        return (
            f"All numbers of this vector are off by the same, about {np.median(vector):.3g} steps. What "
            f"does code 0 stand for?"
        )
    return "From which numbers was this step made, and what does code 0 stand for?"


def too_wide(case: Challenge, result: Evidence) -> str | None:
    """Find the first step that is wider than this many bits need."""
    info = torch.finfo(getattr(torch, case["dtype"]))
    most = np.maximum(widest_step(case["x"], case["bits"], case["dim"]), info.tiny)
    scale = result["scale"].astype(float)
    near = ROUNDING * max(info.eps, torch.finfo(torch.float32).eps)
    bad = np.argwhere(~(scale <= most * (1 + near)))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    return (
        f"{describe(case)}: scale{list(place)} is {scale[place]:.3g}, but {2 ** case['bits']} codes "
        f"reach over this vector in steps of {most[place]:.3g} at most. Of which numbers is your step "
        f"made, and how many of your codes are used?"
    )


# --- half_a_step_at_most -------------------------------------------------------------------------


def probe_numbers(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize the numbers of each case; and dequantize codes that were drawn."""
    made, results = [], []
    for case in challenge["cases"]:
        made.append(quantize_case(student, case))
        results.append(parts(made[-1]))
    backs, kept = [], []
    for case in challenge["coded"]:
        dtype = getattr(torch, case["dtype"])
        arrays = (given(case["codes"]), given(case["scale"], dtype), given(case["zero"], dtype))
        q = Quantized(*arrays, case["bits"])
        before = parts(q)
        back = student.dequantize(q)
        backs.append({"back": as_array(back), "dtype": dtype_of(back)})
        kept.append(is_as_it_was(q, before))
    stay = [is_as_it_was(*pair) for pair in zip(made, results, strict=True)]
    return {"results": results, "stay": stay, "backs": backs, "kept": kept}


def evidence_of_numbers(challenge: Challenge) -> Any:
    """The form of what `probe_numbers` records."""
    n, m = len(challenge["cases"]), len(challenge["coded"])
    return {
        "results": [PARTS] * n,
        "stay": [bool] * n,
        "backs": [{"back": TENSOR, "dtype": str}] * m,
        "kept": [bool] * m,
    }


@check(
    "quantize", "dequantize", draw=draw_vectors, probe=probe_numbers, evidence=evidence_of_numbers
)
def half_a_step_at_most(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Array, Array, Array], Array]
) -> Verdict:
    """No number is off by more than half a step, no step is wider than it must be, and codes become the
    numbers of `truth`: (codes, scale, zero) to what they stand for."""
    worst = 0.0
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        if problem := wrong_form(case, result) or too_far(case, result) or too_wide(case, result):
            return failed(problem)
        if case["dtype"] == "float32":
            worst = max(worst, float(np.abs(errors(case, result)[0] / result["scale"]).max()))
    if not all(evidence["stay"]):
        return failed(
            "What quantize returned was changed by a later call of it. In whose memory does it lie?"
        )
    for case, back, kept in zip(
        challenge["coded"], evidence["backs"], evidence["kept"], strict=True
    ):
        wanted = truth(*(case[name] for name in ("codes", "scale", "zero")))
        problem = wrong_numbers(case, back, wanted)
        if problem:
            return failed(f"Codes {case['codes'].shape} with steps of {case['dtype']}: {problem}")
        if not kept:
            return failed(
                "dequantize changed the Quantized that it was given. Which of your lines writes into it?"
            )
    return passed(f"2, 4 and 8 bits: no number is off by more than {worst:.2f} of its step.")


def wrong_numbers(case: Challenge, back: Evidence, wanted: Array) -> str | None:
    """Say what is wrong with what dequantize made of drawn codes, if anything."""
    got = back["back"]
    if not isinstance(got, np.ndarray):
        return f"dequantize gave {got}; wanted is a tensor."
    if got.shape != wanted.shape:
        return f"dequantize gave shape {got.shape}, wanted is that of the codes."
    if back["dtype"] != case["dtype"]:
        return f"dequantize gave {back['dtype']}. Whose dtype should it be?"
    codes, scale, zero = (case[name].astype(float) for name in ("codes", "scale", "zero"))
    reach = np.abs(zero) + scale * 2 ** case["bits"]
    near = np.maximum(rounding_of(reach, case["dtype"]), 1e-6 * reach)
    bad = np.argwhere(~(np.abs(got.astype(float) - wanted) <= near))
    if not len(bad):
        return None
    at = tuple(bad[0].tolist())
    step, start = (np.broadcast_to(part, codes.shape)[at] for part in (scale, zero))
    if codes[at] >= 2 ** (case["bits"] - 1) and len(bad) < codes.size:
        question = (
            f"Smaller codes come back right. Is {int(codes[at])} still that number in your type?"
        )
    else:
        question = "What does code 0 stand for, and how far from there is the next code?"
    return (
        f"code {int(codes[at])}, scale {step:.4g}, zero {start:.4g} became {got[at]:.4g}; it stands for "
        f"{wanted[at]:.4g}. {question}"
    )


# --- codes_fit_their_bits ------------------------------------------------------------------------


def others_of(case: Challenge) -> int:
    """The axis along which the first and the last vectors of a case are taken alone."""
    return (case["dim"] + 1) % case["x"].ndim


def draw_few_vectors(seed: int) -> Challenge:
    """Draw the float32 vectors of `draw_vectors`, and those of float64."""
    cases = draw_vectors(seed)["cases"]
    return {"cases": [case for case in cases if case["dtype"] in ("float32", "float64")]}


def probe_codes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Quantize all vectors at once, and the first and the last of them alone."""
    results, alone = [], []
    for case in challenge["cases"]:
        results.append(parts(quantize_case(student, case)))
        ends = [np.take(case["x"], [at], axis=others_of(case)) for at in (0, -1)]
        ends = ends if case["x"].ndim > 1 else []
        alone.append([parts(quantize_case(student, {**case, "x": x})) for x in ends])
    return {"results": results, "alone": alone}


def evidence_of_codes(challenge: Challenge) -> Any:
    """The form of what `probe_codes` records."""
    alone = [[PARTS, PARTS] if case["x"].ndim > 1 else [] for case in challenge["cases"]]
    return {"results": [PARTS] * len(alone), "alone": alone}


@check("quantize", draw=draw_few_vectors, probe=probe_codes, evidence=evidence_of_codes)
def codes_fit_their_bits(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Codes are bytes of so many bits, and those of a vector depend on no other vector."""
    for case, result, alone in zip(
        challenge["cases"], evidence["results"], evidence["alone"], strict=True
    ):
        problem = wrong_form(case, result) or wrong_codes(case, result)
        if problem:
            return failed(problem)
        for at, single in zip((0, -1), alone, strict=False):
            other = others_of(case)
            small = {**case, "x": np.take(case["x"], [at], axis=other)}
            if problem := wrong_form(small, single):
                return failed(problem)
            if (single["codes"] != np.take(result["codes"], [at], axis=other)).any():
                return failed(
                    f"{describe(case)}: vectors that are quantized alone, {small['x'].shape}, get other "
                    f"codes than among the rest. Which numbers may a code depend on?"
                )
    return passed("Codes are bytes, use no more than their bits, and each vector has its own step.")


def wrong_codes(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with codes of the right shape, if anything."""
    codes = result["codes"]
    if codes.dtype != np.uint8:
        return (
            f"{describe(case)}: the codes are {result['dtypes'][0]}, {codes.dtype.itemsize} byte(s) "
            f"each; wanted is uint8. Which whole numbers does a code have to be, and which type holds "
            f"just those of 8 bits?"
        )
    if codes.max() >= 2 ** case["bits"]:
        return (
            f"{describe(case)}: codes run up to {codes.max()}; {case['bits']} bits end at "
            f"{2 ** case['bits'] - 1}. What becomes of the largest number?"
        )
    along = np.moveaxis(codes, case["dim"], -1).reshape(-1, codes.shape[case["dim"]])
    if (along == along[:, :1]).all():
        return (
            f"{describe(case)}: all codes of a vector are the same. What tells its numbers apart?"
        )
    return None


# --- flat_vectors_stay_finite --------------------------------------------------------------------


def draw_flat(seed: int) -> Challenge:
    """Draw zeros, one number again and again, vectors of one number, no vectors at all, and float16
    numbers whose steps are too small for float16, or nearly."""
    rng = np.random.default_rng(seed)
    level = float(rng.uniform(0.5, 9))
    bits = iter([*rng.permutation([2, 4, 8, 8]).tolist(), 8, 8, 4, 8])
    arrays = {
        "zeros": (np.zeros((2, 3, 4)), -1, "float32"),
        "one number": (np.full((2, 3, 4), level), 1, "float32"),
        "one negative number": (np.full((2, 3, 4), -level), -1, "float16"),
        "vectors of length 1": (rng.normal(size=(4, 1, 3)), 1, "float32"),
        "tiny numbers": (rng.uniform(-3e-6, 3e-6, (2, 3, 16)), -1, "float16"),
        "small numbers": (rng.uniform(-2e-3, 2e-3, (2, 3, 16)), -1, "float16"),
        "one number in bfloat16": (np.full((2, 3), level), 1, "bfloat16"),
        "no vectors": (np.zeros((0, 5)), 1, "float32"),
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
        back = student.dequantize(q)
        results.append({**parts(q), "back": as_array(back), "back dtype": dtype_of(back)})
    return {"results": results}


def evidence_there_and_back(challenge: Challenge) -> Any:
    """The form of what `probe_there_and_back` records."""
    return {"results": [{**PARTS, "back": TENSOR, "back dtype": str}] * len(challenge["cases"])}


@check(
    "quantize",
    "dequantize",
    draw=draw_flat,
    probe=probe_there_and_back,
    evidence=evidence_there_and_back,
)
def flat_vectors_stay_finite(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Codes and what comes back are finite and right, and no step is below the smallest."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        problem = wrong_form(case, result) or wrong_flat(case, result)
        if problem:
            return failed(f"{case['name'].capitalize()}. {problem}")
    return passed("Equal numbers come back as they were, and every step is above 0.")


def wrong_flat(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with a case that has hardly a range, or none, if anything."""
    x, scale, back = case["x"].astype(float), result["scale"].astype(float), result["back"]
    info = torch.finfo(getattr(torch, case["dtype"]))
    if not (scale >= info.tiny).all():
        return (
            f"{describe(case)}: there are steps of {scale.min():.3g}; {case['dtype']} has full precision "
            f"only from {info.tiny:.3g} on. What is the range of numbers that are all the same, or "
            f"nearly?"
        )
    if not isinstance(back, np.ndarray) or back.shape != x.shape:
        shape = back.shape if isinstance(back, np.ndarray) else back
        return f"{describe(case)}: dequantize gave {shape}; wanted is a tensor as x."
    if result["back dtype"] != case["dtype"]:
        return (
            f"{describe(case)}: dequantize gave {result['back dtype']}. Whose dtype should it be?"
        )
    if not np.isfinite(back).all():
        return (
            f"{describe(case)}: NaN or infinity came back (step {scale.flat[0]:.3g}). What is divided "
            f"by what when all numbers are the same?"
        )
    if not x.size:
        return None
    error, aside = errors(case, result)
    most = np.maximum(widest_step(x, case["bits"], case["dim"]), info.tiny)
    codes, zero = result["codes"].astype(float), result["zero"].astype(float)
    near = rounding_of(np.abs(zero) + scale * codes, case["dtype"])
    bad = ~(np.abs(error) <= 0.75 * most + aside) | ~(np.abs(back - zero - scale * codes) <= near)
    if not bad.any():
        return None
    place = tuple(np.argwhere(bad)[0].tolist())
    step = np.broadcast_to(scale, x.shape)[place]
    question = (
        "Which number does code 0 stand for when there is no range?"
        if step > most.min() or np.ptp(x) == 0
        else "Which step was used to divide, and which one is stored?"
    )
    return (
        f"{describe(case)}: {x[place]:.4g} got code {result['codes'][place]} and came back as "
        f"{back[place]:.4g} (step {step:.3g}, zero {np.broadcast_to(zero, x.shape)[place]:.4g}). "
        f"{question}"
    )
