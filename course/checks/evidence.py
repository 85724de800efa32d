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


def one_each(
    others: dict[str, Any] | None = None, /, **forms: Any
) -> Callable[[Challenge], dict[str, Any]]:
    """Declare evidence with one item for each item of the challenge's list of the same name.

    Args:
        others: forms of evidence that is no such list, by name.
        forms: the form of an item of each list.
    """
    return lambda challenge: {
        **(others or {}),
        **{name: [form] * len(challenge[name]) for name, form in forms.items()},
    }


def always(form: Any) -> Callable[[Challenge], Any]:
    """Declare evidence whose form is the same for every challenge."""
    return lambda challenge: form


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
