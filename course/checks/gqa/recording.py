"""Record the tensor that a student's function returns, and tell what is wrong about its form."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.counts import in_words

RECORD = {"kind": str, "type": str, "numbers": np.ndarray}
"""The form of what `record` returns."""


def record(value: Any) -> dict[str, Any]:
    """Record type and numbers of a tensor, as they are now; of anything else, what it is, in words
    ("kind")."""
    if not isinstance(value, Tensor):
        return {"kind": in_words(value), "type": "", "numbers": np.zeros(0)}
    tensor = value.detach().cpu()
    numbers = tensor.float() if tensor.dtype is torch.bfloat16 else tensor  # NumPy has no bfloat16
    return {"kind": "", "type": type_name(tensor), "numbers": numbers.numpy().copy()}


def type_name(tensor: Tensor) -> str:
    """Write "float32" for a tensor of torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def wrong_form(got: dict[str, Any], shape: tuple[int, ...], dtype: str) -> str | None:
    """Tell what is wrong about shape and type of a record; None where nothing is."""
    if got["kind"]:
        return f"gave {got['kind']}; wanted is a tensor. What do you return?"
    found = got["numbers"].shape
    if found != shape:
        return f"gave shape {found}; wanted is {shape}. {ask_about_shape(found, shape)}"
    if got["type"] != dtype:
        return (
            f"gave {got['type']} for {dtype} inputs. Which of your lines makes numbers of another "
            f"type?"
        )
    return None


def ask_about_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Choose the question about a wrong shape (B, heads, tokens, D)."""
    if found == tuple(size for size in wanted if size != 1):
        return "An axis of size 1 is an axis, too. Which of your lines drops it?"
    if len(found) != len(wanted):
        return "Which axes are joined at the end, and which are not?"
    if sorted(found) == sorted(wanted):
        return "The sizes are right, their order is not. Which axis counts heads, which tokens?"
    if found[1] != wanted[1] and found[:1] + found[2:] == wanted[:1] + wanted[2:]:
        return "All but the number of heads is right. How many should there be?"
    return "Which axis counts the heads?"
