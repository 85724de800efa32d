"""Record what a student's function returned as plain data, and find what is wrong about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence
from course.checks.counts import in_words, plain

Array = np.ndarray
Place = tuple[int, ...]
ShapeQuestion = str | Callable[[tuple[int, ...], tuple[int, ...]], str]
RESULT = {"type": str, "value": (int, float, str, list, np.ndarray, type(None))}
"""The form of what `record_result` returns."""
TYPE_QUESTION = "Which of your lines makes numbers of another type?"
RECORD = {"kind": str, "type": str, "numbers": np.ndarray}
"""The form of what `record` returns."""


def one_each(of: str = "cases", **forms: Any) -> Callable[[Challenge], Any]:
    """Declare the form of evidence that has a list of each name: as many items of its form as the
    challenge has under `of`."""
    return lambda challenge: {name: [form] * len(challenge[of]) for name, form in forms.items()}


def record(value: Any) -> dict[str, Any]:
    """Record type and numbers of a tensor, as they are now; of anything else, what it is, in words
    ("kind")."""
    if not isinstance(value, Tensor):
        return {"kind": in_words(value), "type": "", "numbers": np.zeros(0)}
    tensor = value.detach().cpu()
    numbers = tensor.float() if tensor.dtype is torch.bfloat16 else tensor  # NumPy has no bfloat16
    return {"kind": "", "type": type_name(tensor), "numbers": numbers.numpy().copy()}


TENSOR = (np.ndarray, str)
"""The form of what `as_array` returns."""


def as_array(value: Any) -> Array | str:
    """Turn a tensor into an array; of anything else, say what it is. NumPy has no bfloat16: such
    numbers become float32."""
    if not isinstance(value, Tensor):
        return in_words(value)
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def first_place(wrong: Array) -> Place | None:
    """Find the place of the first True; None where there is none."""
    places = np.argwhere(wrong)
    return tuple(places[0].tolist()) if len(places) else None


def type_name(tensor: Tensor) -> str:
    """Write "float32" for a tensor of torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def wrong_form(got: dict[str, Any], shape: tuple[int, ...], dtype: str) -> str | None:
    """Tell what is wrong about shape and type of a record; None where nothing is."""
    if got["kind"]:
        return f"gave {got['kind']}; expected is a tensor. What do you return?"
    found = got["numbers"].shape
    if found != shape:
        return f"gave shape {found}; expected is {shape}. {ask_about_shape(found, shape)}"
    if got["type"] != dtype:
        return f"gave {got['type']} for {dtype} inputs. {TYPE_QUESTION}"
    return None


def ask_about_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Choose the question about a wrong shape (B, heads, tokens, D)."""
    if [n for n in found if n != 1] == [n for n in wanted if n != 1]:
        if len(found) < len(wanted):
            return "An axis of size 1 is an axis, too. Which of your lines drops it?"
        if len(found) > len(wanted):
            return "Which of your lines leaves an axis of size 1 behind?"
    if len(found) != len(wanted):
        return "Which axes are joined at the end, and which are not?"
    if sorted(found) == sorted(wanted):
        return "The sizes are right, their order is not. Which axis counts heads, which tokens?"
    if found[1] != wanted[1] and found[:1] + found[2:] == wanted[:1] + wanted[2:]:
        return "All but the number of heads is right. How many should there be?"
    if found[:2] == wanted[:2]:
        return "Rows and heads are right. Which axis has another size, and what does it count?"
    return "Which axis counts the heads?"


def record_result(result: Any) -> Evidence:
    """Record a result as plain data: the numbers of a tensor, with their type; a number, a text in
    quotation marks, None, or a list of these. Of anything else, what it is, in words."""
    if isinstance(result, Tensor):
        tensor = record(result)
        return {"type": tensor["type"], "value": tensor["numbers"]}
    return {"type": "", "value": _plain(result)}


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
    text = f"a tensor of {got['type']}, of shape {value.shape}" if is_tensor else f"{value}"
    text = "nothing (None)" if value is None else text
    if isinstance(expected, np.ndarray):
        dtype = dtype or str(expected.dtype)
        if not is_tensor:
            return f"gave {text}; expected is a tensor. What do you return?"
        if got["type"] != dtype:
            return f"gave {got['type']}; expected is {dtype}. {TYPE_QUESTION}"
        if value.shape != expected.shape:
            question = shape_question
            question = (
                question if isinstance(question, str) else question(value.shape, expected.shape)
            )
            return f"gave shape {value.shape}; expected is {expected.shape}. {question}"
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
