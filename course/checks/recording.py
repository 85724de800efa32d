"""Record what a student's function returned as plain data, and find what is wrong about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Evidence
from course.checks.counts import plain

Array = np.ndarray
Place = tuple[int, ...]
RESULT = {"type": str, "value": (int, float, str, list, np.ndarray, type(None))}
"""The form of what `record` returns."""


def record(result: Any) -> Evidence:
    """Record a result as plain data: the numbers of a tensor, with their type; a number, a text in
    quotation marks, None, or a list of these. Of anything else, what it is, in words."""
    if isinstance(result, Tensor):
        kept = result.detach().cpu()
        numbers = kept.float() if kept.dtype is torch.bfloat16 else kept  # NumPy has no bfloat16
        return {"type": type_name(kept), "value": numbers.numpy().copy()}
    return {"type": "", "value": _plain(result)}


def type_name(tensor: Tensor) -> str:
    """Write "float32" for a tensor of torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return f'"{value:.40}"'
    single = isinstance(value, Tensor) and value.ndim == 0
    return value if value is None else plain(value.item() if single else value)


def wrong_kind(
    got: Evidence, expected: Any, dtype: str | None = None, shape_question: str = ""
) -> str:
    """Tell what is wrong about the kind, type or shape of a result; "" where nothing is.

    Args:
        dtype: of the tensor, where it is not that of the expected array.
    """
    value, is_tensor = got["value"], isinstance(got["value"], np.ndarray)
    text = f"a {got['type']} tensor of shape {value.shape}" if is_tensor else f"{value}"
    text = "nothing (None)" if value is None else text
    if isinstance(expected, np.ndarray):
        dtype = dtype or str(expected.dtype)
        if not is_tensor:
            return f"gave {text}; expected is a tensor. What do you return?"
        if got["type"] != dtype:
            return (
                f"gave {got['type']}; expected is {dtype}. Which of your lines makes another type?"
            )
        if value.shape != expected.shape:
            return f"gave shape {value.shape}; expected is {expected.shape}. {shape_question}"
    elif isinstance(expected, list | tuple):
        if not isinstance(value, list) or len(value) != len(expected):
            return f"gave {text}; expected are {len(expected)} values. What do you return?"
    elif isinstance(expected, int | float) and not isinstance(value, int | float):
        return f"gave {text}; expected is one number. What do you return?"
    return ""


def first_wrong(value: Any, expected: Any, tolerance: float) -> Place | None:
    """Find the first wrong number of a result of the right kind; None where all are right.

    Args:
        tolerance: largest difference that counts as equal; of a number above 1, a part of it.
    """
    if isinstance(expected, np.ndarray):
        with np.errstate(invalid="ignore"):
            distance = np.abs(value.astype(np.float64) - expected.astype(np.float64))
        close = (value == expected) | (distance <= tolerance * np.maximum(1, np.abs(expected)))
        return next(map(tuple, np.argwhere(~close).tolist()), None)
    if isinstance(expected, list | tuple):
        pairs = enumerate(zip(value, expected, strict=True))
        return next(((i,) for i, pair in pairs if first_wrong(*pair, tolerance) is not None), None)
    if value == (f'"{expected}"' if isinstance(expected, str) else expected):
        return None
    if all(isinstance(number, int | float) for number in (value, expected)):
        return None if abs(value - expected) <= tolerance * max(1, abs(expected)) else ()
    return ()
