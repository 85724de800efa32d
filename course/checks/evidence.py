"""Write down what a student's function returned, declare the form of that, and find where it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge
from course.checks.counts import in_words

Array = np.ndarray
TENSOR = (np.ndarray, str)
"""The form of what `as_array` returns."""


def one_each(of: str = "cases", **forms: Any) -> Callable[[Challenge], Any]:
    """Declare the form of evidence that has a list of each name: as many items of its form as the
    challenge has under `of`."""
    return lambda challenge: {name: [form] * len(challenge[of]) for name, form in forms.items()}


def as_array(value: Any) -> Array | str:
    """Turn a tensor into an array; of anything else, say what it is. NumPy has no bfloat16: such
    numbers become float32."""
    if not isinstance(value, torch.Tensor):
        return in_words(value)
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def dtype_of(value: Any) -> str:
    """Name the dtype of a tensor, "float32" for torch.float32; "" of anything else."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def first_place(wrong: Array) -> tuple[int, ...] | None:
    """Find the place of the first True; None where there is none."""
    places = np.argwhere(wrong)
    return tuple(places[0].tolist()) if len(places) else None
