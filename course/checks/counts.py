"""Check functions that turn sizes into one number, such as FLOPs, bytes or rows."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import torch

NUMBER_OR_WORDS = (int, float, str)
"""The form of what `plain` returns."""
MOST_BITS = 1000
"""Of a whole number that is still compared: a float holds no more than 1,024, and Python prints none
of more than 4,300 digits."""


def plain(value: Any) -> int | float | str:
    """Turn a returned number into a plain int or float; describe anything else in words."""
    if isinstance(value, bool | np.bool_):
        return "a bool"
    if isinstance(value, numbers.Integral):
        whole = int(value)
        if whole.bit_length() > MOST_BITS:
            return f"a number of about {math.ceil(whole.bit_length() * math.log10(2)):,} digits"
        return whole
    if isinstance(value, numbers.Real):
        return float(value)
    return in_words(value)


def in_words(value: Any) -> str:
    """Say what came in the place of what was asked for; of a tensor its shape, too, for one of a single
    number is another mistake than one of many."""
    if value is None:
        return "nothing (None)"
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}{shape}"


def counted(result: float, expected: int) -> str:
    """Say what a function gave, and what is right."""
    return f"gave {result:,}; counted one by one it is {expected:,}."
