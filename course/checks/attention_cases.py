"""Cases of attention with shared keys: how they are drawn, given to a student's function, and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge
from course.checks.recorder import given
from course.checks.recording import RECORD, record
from course.measure.allocations import NewTensors, in_python, watch_new_tensors

MASKS = {
    "(T, S)": (0, 0, 1, 1),
    "(B, 1, T, S)": (1, 0, 1, 1),
    "(B, 1, 1, S)": (1, 0, 0, 1),
    "(B, H, T, S)": (1, 1, 1, 1),
    "(H, T, S)": (0, 1, 1, 1),
    "(H, 1, S)": (0, 1, 0, 1),
    "(1, S)": (0, 0, 0, 1),
}
"""Shapes of a mask, and which of the axes B, H, T, S it has in full."""


def draw_case(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int, int],
    mask: np.ndarray | None = None,
    D: int = 6,
) -> Challenge:
    """Draw queries, keys and values, float32; sharp enough to tell keys apart.

    Args:
        sizes: B, H, G, T, S.
        D: width of a head.
    """
    B, H, G, T, S = sizes
    q = rng.normal(0, 2, (B, H, T, D)).astype(np.float32)
    k, v = rng.normal(size=(2, B, G, S, D)).astype(np.float32)
    return {"q": q, "k": k, "v": v, "mask": mask, "dtype": "float32", "stage": ""}


def draw_mask(rng: np.random.Generator, sizes: tuple[int, ...], name: str) -> np.ndarray:
    """Draw a mask of the shape with this name that shows every query some key and hides another."""
    B, H, _, T, S = sizes
    shape = tuple(size if full else 1 for size, full in zip((B, H, T, S), MASKS[name], strict=True))
    mask = rng.random(shape) < 0.5
    keys = rng.integers(0, S, shape[:-1])[..., None]
    np.put_along_axis(mask, keys, True, axis=-1)
    np.put_along_axis(mask, (keys + 1) % S, False, axis=-1)
    return mask.reshape(shape[-1 - name.count(",") :])


def tensors_of(case: Challenge) -> list[Tensor]:
    """Make queries, keys and values of a case, in its type and in another order of memory; and its mask,
    if it has one."""
    tensors = [given(case[name], getattr(torch, case["dtype"])) for name in ("q", "k", "v")]
    return tensors if case["mask"] is None else [*tensors, given(case["mask"])]


def sizes_text(case: Challenge) -> str:
    """Write "4 query heads on 2 KV heads, T = 3, S = 5", and the type where it is not float32."""
    (_, H, T, _), (G, S) = case["q"].shape, case["k"].shape[1:3]
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    return f"{H} query heads on {G} KV head{'s' * (G > 1)}, T = {T}, S = {S}{in_type}"


WATCHED = {"out": RECORD, "count": int, "most": int, "largest": str, "read": bool}
"""The form of what `run_watched` returns."""
NOT_READ = (
    "the result is right, but no operation of PyTorch read queries and keys, and others cannot be "
    "counted. Which of your lines leave PyTorch?"
)


def run_watched(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a student's function; record its output, how many numbers were written into new tensors, how
    many into the largest one and what made it, and whether queries, keys and values were read."""
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    with watch_new_tensors(*tensors) as made:
        result = function(*arguments)
    largest = made.largest
    return {
        "out": record(result),
        "count": made.numbers,
        "most": largest.numbers if largest else 0,
        "largest": largest_text(made),
        "read": all(made.read[:3]),
    }


def largest_text(made: NewTensors) -> str:
    """Write "(4, 2, 64), made by `bmm`", without axes of size 1."""
    if (most := made.largest) is None:
        return "none"
    return f"{tuple(size for size in most.shape if size > 1)}, made by `{in_python(most.made_by)}`"
