"""Call lesson 01's functions, record how a call went, and tell what is wrong about its result."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from course.checks.check import Evidence
from course.checks.recording import Array, one_each, type_name

OUTPUT = {
    "kind": str,
    "error": str,
    "words": str,
    "dtype": str,
    "array": (np.ndarray, type(None)),
}
"""The form of what `call` records."""
one_output_each = one_each(outputs=OUTPUT)
TORCH_ERRORS = ("RuntimeError", "IndexError")
"""What PyTorch raises where nobody refused."""


def call(function: Any, *arguments: Any, **named: Any) -> Evidence:
    """Run a student's function and record what it returned, as plain values: the kind of result
    ("error", "Tensor" or a type's name); of an exception its name and words; of a tensor its dtype and
    numbers."""
    output = {"kind": "error", "error": "", "words": "", "dtype": "", "array": None}
    try:
        value = function(*arguments, **named)
    except NotImplementedError:
        raise  # here the student has not begun
    except Exception as error:
        return {**output, "error": type(error).__name__, "words": str(error)}
    if not isinstance(value, Tensor):
        return {**output, "kind": type(value).__name__}
    array = value.detach().double() if value.is_floating_point() else value.detach()
    return {**output, "kind": "Tensor", "dtype": type_name(value), "array": array.numpy().copy()}


def form_error(name: str, out: Evidence, shape: tuple[int, ...], dtype: str) -> str | None:
    """Say what is wrong with the form of a result, or None."""
    if error := stopped(name, out):
        return error
    if out["kind"] != "Tensor":
        return f"{name} must return a tensor, got {out['kind']}. What does its last line return?"
    if out["array"].shape != shape:
        return wrong_shape(name, out["array"].shape, shape)
    if out["dtype"] != dtype:
        question = about_dtype(dtype, out["dtype"])
        return f"{name} returned {out['dtype']} and should return {dtype}. {question}"
    if not np.isfinite(out["array"]).all():
        place = tuple(np.argwhere(~np.isfinite(out["array"]))[0].tolist())
        return (
            f"{name}: the number at {place} is {out['array'][place]}. "
            "What goes into the softmax of that row?"
        )
    return None


def stopped(name: str, out: Evidence) -> str | None:
    """Say with which exception a call stopped; None where it did not."""
    if not out["error"]:
        return None
    words = f"{name} stopped with {out['error']}: {out['words']}".strip(" :")
    question = about_error(out["words"])
    return f"{words.rstrip('.')}. {question}" if question else words


def wrong_shape(name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Say that a shape is wrong, and ask about its axes."""
    question = "Which axis is where?"
    if len(got) < len(shape):
        question = "Which axis got lost?"
        if 1 in shape:
            question = "Which axis got lost, and is it dropped only where its length is 1?"
    elif len(got) > len(shape):
        question = "Which axis is one too many?"
    return f"{name} returned shape {tuple(got)} and should return {shape}. {question}"


def about_dtype(dtype: str, got: str) -> str:
    if dtype == "int64" and "float" in got:
        return "Tokens are int64. Is that a token, or the logit that it has?"
    if dtype == "int64":
        return "Tokens are int64 everywhere in the course."
    return "A result has the dtype of the inputs. Which of your tensors has one of its own?"


def about_error(words: str) -> str:
    """Ask what an exception of PyTorch points at; "" where it says enough."""
    if "view size is not compatible" in words:
        return "Inputs may lie in memory in any order, as transposes do. Which call needs none?"
    if "dtype" in words or "scalar type" in words:
        return "Which of your tensors has a dtype of its own?"
    if "probability tensor" in words or "multinomial" in words:
        return "Which weights does a row draw with: is one below 0 or no number, or are all 0?"
    if "out of bounds" in words:
        return "Which of your lines makes that index, and is it one that you were given?"
    return ""


def gap(a: Array, b: Array) -> float:
    """Compute max |Δ|."""
    return float(np.abs(a - b).max())


def moved(a: Array, b: Array, axis: int, tolerance: float) -> list[int]:
    """List the indices along `axis` at which two outputs differ."""
    others = tuple(i for i in range(a.ndim) if i != axis % a.ndim)
    return np.flatnonzero(np.abs(a - b).max(axis=others) > tolerance).tolist()
