"""Draw numbers for quantize, record what it makes of them, and bound how far off a code may be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import TENSOR, Array, as_array
from course.fast.quantized import BITS, Quantized

ROUNDING = 4
"""Roundings that a right answer may be off, beside half a step: subtract, divide, multiply and add are
one each, in whatever order a style has them."""
ARRAYS = ("codes", "scale", "zero")
PARTS = {
    "form": str,
    **dict.fromkeys(ARRAYS, TENSOR),
    "dtypes": [str] * 3,
    "bits": (int, str),
}
"""The form of what quantize returned, see `parts`."""
BACK = {"back": TENSOR, "back dtype": str}
"""The form of what dequantize returned, see `back_of`."""


def dtype_of(value: Any) -> str:
    """Name the dtype of a tensor, "float32" for torch.float32; "" of anything else."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def case_of(x: Any, bits: int, dim: int, dtype: str = "float32") -> Challenge:
    """Make a case: numbers that `dtype` can hold, for quantize. NumPy has no bfloat16: there they are
    float32 of the same values."""
    held = torch.as_tensor(np.asarray(x)).to(getattr(torch, dtype))
    return {"x": as_array(held), "dtype": dtype, "bits": int(bits), "dim": int(dim)}


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
    each = shape_of_steps(shape, dim)
    size = 10 ** rng.uniform(-2, 2, each)
    x = size * (rng.normal(size=shape) + rng.choice([-4, 0, 0, 4], each))
    return case_of(x, bits, dim, dtype)


def draw_coded(rng: np.random.Generator) -> list[Challenge]:
    """Draw codes, scales and zeros that no quantize has made, in each dtype; two of one shape."""
    cases = []
    for bits, dtype in zip((2, 4, 8, 8), ("float32", "float16", "float32", "float64"), strict=True):
        steps = shape_of_steps((2, 3, 4), dim := int(rng.integers(0, 3)))
        codes = rng.integers(0, 2**bits, (2, 3, 4)).astype(np.uint8)
        codes.flat[int(rng.integers(24))] = 2**bits - 1
        scale = case_of(rng.uniform(0.1, 1, steps), bits, dim, dtype)["x"]
        zero = case_of(rng.normal(0, 9, steps), bits, dim, dtype)["x"]
        cases.append({"codes": codes, "scale": scale, "zero": zero, "bits": bits, "dtype": dtype})
    return cases


def shape_of_steps(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Give the shape that has one number for each vector along `dim`."""
    return tuple(1 if axis == dim % len(shape) else n for axis, n in enumerate(shape))


def quantize_case(student: SimpleNamespace, case: Challenge) -> Any:
    """Call the student's quantize on a case's numbers."""
    x = given(case["x"], getattr(torch, case["dtype"]))
    return student.quantize(x, case["bits"], case["dim"])


def parts(q: Any) -> Evidence:
    """Turn what quantize returned into plain data; of anything but a Quantized, say what it is."""
    if not isinstance(q, Quantized):
        return {"form": in_words(q), **dict.fromkeys(ARRAYS, ""), "dtypes": [""] * 3, "bits": ""}
    arrays = {name: as_array(getattr(q, name)) for name in ARRAYS}
    bits = q.bits if type(q.bits) is int else in_words(q.bits)
    return {"form": "", **arrays, "dtypes": [dtype_of(part) for part in q[:3]], "bits": bits}


def describe(case: Challenge) -> str:
    """The shape, dtype, bits and dim of a case, in words."""
    name, shape = case.get("name", "x"), case["x"].shape
    return f"{name} {shape} of {case['dtype']}, {case['bits']} bits, dim={case['dim']}"


def first_wrong(
    challenge: Challenge, evidence: Evidence, *tests: Callable[[Challenge, Evidence], str | None]
) -> str | None:
    """Say what is wrong with the first case that fails a test, of which the form is one; or None."""
    for case, result in zip(challenge["cases"], evidence["cases"], strict=True):
        for test in (wrong_form, *tests):
            if wrong := test(case, result):
                return f"{describe(case)}: {wrong}"
    return None


def wrong_form(case: Challenge, result: Evidence) -> str | None:
    """Say what is wrong with the types, shapes and dtypes of what quantize returned, if anything."""
    if result["form"]:
        return f"quantize gave {result['form']}; wanted is a Quantized."
    steps = shape_of_steps(case["x"].shape, case["dim"])
    for name, shape in zip(ARRAYS, (case["x"].shape, steps, steps), strict=True):
        if not isinstance(result[name], np.ndarray):
            return f"{name} is {result[name]}; wanted is a tensor."
        if result[name].shape != shape:
            return (
                f"{name} has shape {result[name].shape}, wanted is {shape}: codes as x, one scale and "
                f"one zero for each vector along the dim. Which numbers share a step?"
            )
    for name, dtype in zip(ARRAYS[1:], result["dtypes"][1:], strict=True):
        if dtype != case["dtype"]:
            return f"{name} is {dtype}, wanted is the dtype of x, {case['dtype']}."
        if not np.isfinite(result[name]).all():
            return f"{name} holds NaN or infinity. {_ask_about_infinity(case)}"
    if result["bits"] != case["bits"]:
        return f"the Quantized says {result['bits']} bits. Whose bits are these?"
    return None


def _ask_about_infinity(case: Challenge) -> str:
    low, high = float(case["x"].min(initial=0)), float(case["x"].max(initial=0))
    if high - low > info_of(case["dtype"]).max:
        return f"From {low:.0f} to {high:.0f}: how far is that, and can {case['dtype']} say so?"
    return "What is divided by what when all numbers of a vector are the same?"


def back_of(student: SimpleNamespace, q: Any) -> Evidence:
    """Record what the student's dequantize makes of a Quantized."""
    back = student.dequantize(q)
    return {"back": as_array(back), "back dtype": dtype_of(back)}


def wrong_back(case: Challenge, result: Evidence, shape: tuple[int, ...]) -> str | None:
    """Say what is wrong with the form of what dequantize returned, if anything."""
    back = result["back"]
    if not isinstance(back, np.ndarray):
        return f"dequantize gave {back}; wanted is a tensor."
    if back.shape != shape:
        return f"dequantize gave shape {back.shape}, wanted is that of the codes, {shape}."
    if result["back dtype"] != case["dtype"]:
        return f"dequantize gave {result['back dtype']}. Whose dtype should it be?"
    return None


def info_of(dtype: str) -> torch.finfo:
    """Look up the limits of a dtype of PyTorch."""
    return torch.finfo(getattr(torch, dtype))


def widest_step(x: Array, bits: int, axis: int | tuple[int, ...], dtype: str) -> Array:
    """Bound the step that a vector needs, by that of a grid around 0 that leaves one code unused; a
    dtype has full precision only from its smallest normal number on."""
    largest = np.abs(x).astype(float).max(axis=axis, keepdims=True)
    return np.maximum(2 * largest / (2**bits - 2), info_of(dtype).tiny)


def rounding_of(x: Array, dtype: str = "float32") -> Array:
    """Bound what rounding in a dtype adds to an error, for vectors with these largest numbers."""
    info = info_of(dtype)
    return ROUNDING * info.eps * (np.abs(x).astype(float) + info.tiny)


def errors(case: Challenge, result: Evidence) -> tuple[Array, Array]:
    """How far x lies above what its code stands for by the step and the zero that are stored; and what
    rounding may add: float32's, and for a vector's lowest and highest code that of storing both."""
    x, codes, scale, zero = (
        part.astype(float) for part in (case["x"], *(result[name] for name in ARRAYS))
    )
    top, axis = 2 ** case["bits"] - 1, case["dim"]
    aside = np.broadcast_to(rounding_of(np.abs(x).max(axis=axis, keepdims=True)), x.shape)
    ends = (codes == codes.min(axis, keepdims=True)) | (codes == codes.max(axis, keepdims=True))
    eps = info_of(case["dtype"]).eps
    return (x - zero) - scale * codes, aside + ends * eps * (np.abs(zero) + top * scale)
