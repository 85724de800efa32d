"""Numbers to codes and back: how far off, how many codes, flat vectors, two codes in a byte."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import outcome
from course.fast.quantized import BITS, Quantized

ROUNDING = 4
"""Roundings of the dtype that a right answer may be off, beside half a step: subtract, divide, multiply
and add are one each, in whatever order a style has them."""

Array = np.ndarray


def slack(x: Array) -> Array:
    """What rounding in x's own dtype may add to an error, for vectors with these largest numbers."""
    info = np.finfo(x.dtype)
    return ROUNDING * (float(info.eps) * np.abs(x).astype(float) + float(info.smallest_subnormal))


def widest_step(x: Array, bits: int, axis: int | tuple[int, ...]) -> Array:
    """The largest step that a vector needs: that of a grid around 0, which loses one code for being
    symmetric. An asymmetric grid has a smaller one."""
    return 2 * np.abs(x).astype(float).max(axis=axis, keepdims=True) / (2**bits - 2)


def draw_vectors(seed: int) -> Challenge:
    """Numbers of three dimensions for 2, 4 and 8 bits: vectors along `dim` that differ in size and
    in place, some of them on one side of 0."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, dim in zip(BITS, rng.permutation([-1, -2, -3, 0, 1, 2])[:3].tolist(), strict=True):
        shape = (3, 4, 5)
        kept = tuple(1 if axis == dim % 3 else n for axis, n in enumerate(shape))
        size = 10 ** rng.uniform(-2, 2, kept)
        x = size * (rng.normal(size=shape) + rng.choice([-4, 0, 0, 4], kept))
        cases.append({"x": x.astype(np.float32), "bits": bits, "dim": dim})
    return {"cases": cases}


def plain(value: Any) -> Any:
    """A tensor as an array; of anything else, what it is."""
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def quantized(student: SimpleNamespace, case: Challenge) -> Any:
    return student.quantize(torch.from_numpy(case["x"].copy()), case["bits"], case["dim"])


def parts(q: Any) -> Evidence:
    """What quantize returned, as plain data."""
    if not isinstance(q, Quantized):
        return {"form": f"a {type(q).__name__}"}
    return {"form": "", "codes": plain(q.codes), "scale": plain(q.scale), "zero": plain(q.zero)}


def there_and_back(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    results = []
    for case in challenge["cases"]:
        q = quantized(student, case)
        results.append({**parts(q), "back": plain(student.dequantize(q))})
    return {"results": results}


def name_of(case: Challenge) -> str:
    x = case["x"]
    return f"x {x.shape} of {x.dtype}, {case['bits']} bits, dim={case['dim']}"


def wrong_form(case: Challenge, result: Evidence) -> str | None:
    """What is wrong with the form of a result, if anything."""
    if result["form"]:
        return f"{name_of(case)}: quantize gave {result['form']}; wanted is a Quantized."
    for name in ("codes", "scale", "zero", *(["back"] if "back" in result else [])):
        if not isinstance(result[name], np.ndarray):
            return f"{name_of(case)}: {name} is {result[name]}; wanted is a tensor."
    shape = case["x"].shape
    for name in {"codes", "back"} & result.keys():
        if result[name].shape != shape:
            return f"{name_of(case)}: {name} have shape {result[name].shape}, wanted is {shape}."
    steps = tuple(1 if axis == case["dim"] % 3 else n for axis, n in enumerate(shape))
    for name in ("scale", "zero"):
        if result[name].shape != steps:
            return (
                f"{name_of(case)}: {name} has shape {result[name].shape}; one number for each vector "
                f"along the dim would be {steps}. Which numbers share a step?"
            )
        if result[name].dtype != case["x"].dtype:
            return f"{name_of(case)}: {name} is {result[name].dtype}, wanted is the dtype of x."
        if not np.isfinite(result[name]).all():
            return (
                f"{name_of(case)}: {name} holds NaN or infinity. What is divided by what when all "
                f"numbers of a vector are the same?"
            )
    return None


def judge_error(challenge: Challenge, evidence: Evidence) -> Verdict:
    worst = 0.0
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        problem = wrong_form(case, result) or too_far(case, result) or too_wide(case, result)
        if problem:
            return failed(problem)
        error = np.abs(result["back"].astype(float) - case["x"])
        worst = max(worst, float((error / result["scale"].astype(float)).max()))
    return passed(f"2, 4 and 8 bits: no number is off by more than {worst:.2f} of its step.")


def too_far(case: Challenge, result: Evidence) -> str | None:
    """The first number that is off by more than half of the step that the answer itself gives."""
    x, back, scale = case["x"], result["back"].astype(float), result["scale"].astype(float)
    error = np.abs(back - x)
    largest = np.abs(x).max(axis=case["dim"], keepdims=True)
    bad = np.argwhere(~(error <= scale / 2 + slack(largest)))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    step = np.broadcast_to(scale, x.shape)[place]
    off = error[place] / step if step else np.inf
    one_sided = bool((back - x <= slack(largest)).all() or (back - x >= -slack(largest)).all())
    if not np.isfinite(back[place]):
        question = "What is divided by what there?"
    elif one_sided and off <= 1.01:
        question = "All errors have the same sign. Which whole number is the nearest one?"
    else:
        question = "From which numbers was this step made, and what does code 0 stand for?"
    return (
        f"{name_of(case)}: x{list(place)} = {x[place]:.4g} came back as {back[place]:.4g}, off by "
        f"{off:.3g} of its step {step:.3g}; half a step is the limit. {question}"
    )


def too_wide(case: Challenge, result: Evidence) -> str | None:
    """The first step that is wider than this many bits need."""
    most = widest_step(case["x"], case["bits"], case["dim"])
    scale = result["scale"].astype(float)
    bad = np.argwhere(~(scale <= most * (1 + ROUNDING * np.finfo(case["x"].dtype).eps)))
    if not len(bad):
        return None
    place = tuple(bad[0].tolist())
    return (
        f"{name_of(case)}: scale{list(place)} is {scale[place]:.3g}, but {2 ** case['bits']} codes "
        f"reach over this vector in steps of {most[place]:.3g}. How many of your codes are used?"
    )


half_a_step_at_most = Check(
    "half_a_step_at_most", ("quantize", "dequantize"), draw_vectors, there_and_back, judge_error
)


def probe_codes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Codes of all vectors at once, and of the first and the last of them alone."""
    results, alone = [], []
    for case in challenge["cases"]:
        results.append(parts(quantized(student, case)))
        ends = [np.take(case["x"], [at], axis=(case["dim"] + 1) % 3) for at in (0, -1)]
        alone.append([parts(quantized(student, {**case, "x": x})) for x in ends])
    return {"results": results, "alone": alone}


def judge_codes(challenge: Challenge, evidence: Evidence) -> Verdict:
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
                    f"{name_of(case)}: vectors that are quantized alone, {small['x'].shape}, get other "
                    f"codes than among the rest. Which numbers may a code depend on?"
                )
    return passed("Codes are bytes, use no more than their bits, and each vector has its own step.")


def wrong_codes(case: Challenge, codes: Array) -> str | None:
    """What is wrong with codes of the right shape, if anything."""
    if codes.dtype != np.uint8:
        return (
            f"{name_of(case)}: the codes are {codes.dtype}, {codes.dtype.itemsize} bytes each; wanted "
            f"is uint8. How many bytes does a code need?"
        )
    if codes.max() >= 2 ** case["bits"]:
        return (
            f"{name_of(case)}: codes run up to {codes.max()}; {case['bits']} bits end at "
            f"{2 ** case['bits'] - 1}. What becomes of the largest number?"
        )
    along = np.moveaxis(codes, case["dim"], -1).reshape(-1, codes.shape[case["dim"]])
    if all(len(np.unique(row)) == 1 for row in along):
        return f"{name_of(case)}: all codes of a vector are the same. What tells its numbers apart?"
    return None


codes_fit_their_bits = Check(
    "codes_fit_their_bits", ("quantize",), draw_vectors, probe_codes, judge_codes
)


def draw_flat(seed: int) -> Challenge:
    """Zeros, one number again and again, vectors of one number, and float16 numbers whose steps are
    smaller than float16 can say."""
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
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        problem = wrong_form(case, result)
        if problem:
            return failed(f"{case['name'].capitalize()}. {problem}")
        x, back, scale = (a.astype(float) for a in (case["x"], result["back"], result["scale"]))
        if not np.isfinite(back).all():
            return failed(
                f"{case['name'].capitalize()}: {name_of(case)}. NaN or infinity came back (step "
                f"{scale.flat[0]:.3g}). What is divided by what when all numbers are the same?"
            )
        if not (scale > 0).all():
            return failed(
                f"{case['name'].capitalize()}: {name_of(case)}. There are steps of {scale.min():.3g}; "
                f"a step must be above 0. What is the smallest step that {case['x'].dtype} can hold?"
            )
        half = scale / 2 if case["name"] == "tiny numbers" else 0 * scale
        if not (np.abs(back - x) <= half + slack(case["x"])).all():
            at = np.unravel_index(np.abs(back - x).argmax(), x.shape)
            return failed(
                f"{case['name'].capitalize()}: {name_of(case)}. {x[at]:.4g} came back as {back[at]:.4g} "
                f"(step {np.broadcast_to(scale, x.shape)[at]:.3g}). Which step was used to divide, and "
                f"which one is stored?"
            )
    return passed("Zeros, constants, single numbers and tiny ones come back, all finite.")


flat_vectors_stay_finite = Check(
    "flat_vectors_stay_finite", ("quantize", "dequantize"), draw_flat, there_and_back, judge_flat
)


def draw_nibbles(seed: int) -> Challenge:
    """Codes 0 … 15 in one, two and three dimensions."""
    rng = np.random.default_rng(seed)
    shapes = [(2,), (3, 4), (2, 3, 6)]
    codes = [rng.integers(0, 16, shape).astype(np.uint8) for shape in shapes]
    codes[0] = np.array([rng.integers(1, 7), rng.integers(8, 16)], np.uint8)
    return {"codes": codes}


def probe_nibbles(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    packed = [student.pack_int4(torch.from_numpy(codes.copy())) for codes in challenge["codes"]]
    return {
        "packed": [plain(bytes_) for bytes_ in packed],
        "unpacked": [plain(student.unpack_int4(bytes_)) for bytes_ in packed],
        "odd": outcome(lambda: student.pack_int4(torch.zeros(2, 3, dtype=torch.uint8))),
    }


def by_digits(codes: Array) -> Array:
    """Bytes as they are written: a byte is two hexadecimal digits, the high one first."""
    pairs = codes.reshape(-1, 2).tolist()
    written = [int(f"{second:x}{first:x}", 16) for first, second in pairs]
    return np.array(written, np.uint8).reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def nibbles_verdict(truth: Callable[[Array], Array]) -> Callable[..., Verdict]:
    """Args: truth: codes (…, n) to bytes (…, n / 2)."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        for codes, packed, unpacked in zip(
            challenge["codes"], evidence["packed"], evidence["unpacked"], strict=True
        ):
            wanted = truth(codes)
            for name, got, want in (("pack", packed, wanted), ("unpack", unpacked, codes)):
                if not isinstance(got, np.ndarray) or got.dtype != np.uint8:
                    kind = got.dtype if isinstance(got, np.ndarray) else got
                    return failed(f"Codes {codes.shape}: {name}_int4 gave {kind}, wanted is uint8.")
                if got.shape != want.shape:
                    return failed(
                        f"Codes {codes.shape}: {name}_int4 gave shape {got.shape}, wanted is "
                        f"{want.shape}. Which axis do two neighbours stand on?"
                    )
            if (packed != wanted).any():
                at = tuple(np.argwhere(packed != wanted)[0].tolist())
                pair = codes[(*at[:-1], slice(2 * at[-1], 2 * at[-1] + 2))].tolist()
                return failed(
                    f"Codes {codes.shape}: the neighbours {pair} share the byte {packed[at]:08b}. The "
                    f"first belongs into the low four bits, the second into the high ones."
                )
            if (unpacked != codes).any():
                at = tuple(np.argwhere(unpacked != codes)[0].tolist())
                return failed(
                    f"Codes {codes.shape}: the code {codes[at]} at {list(at)} came back as "
                    f"{unpacked[at]}, from bytes that are right. Which four bits are yours, and what "
                    f"stands in the others?"
                )
        if evidence["odd"] != "ValueError":
            return failed(f"pack_int4 of shape (2, 3): {evidence['odd']}, wanted is ValueError.")
        return passed("Two codes in every byte, and the same codes back.")

    return judge


two_codes_share_a_byte = Check(
    "two_codes_share_a_byte",
    ("pack_int4", "unpack_int4"),
    draw_nibbles,
    probe_nibbles,
    nibbles_verdict(by_digits),
)
