"""Checks at the door: of every whole number that a user passes in, and of prompts."""

from collections.abc import Sequence

import torch
from torch import Tensor


def check_between(name: str, value: int, low: int, high: int) -> None:
    """Raise a ValueError that names the value, unless it is a whole number from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def check_prompts(prompts: Sequence[Tensor]) -> None:
    """Raise a ValueError that names the value, unless there is at least one prompt and each is
    (P,) int64 with P of at least 1."""
    if len(prompts) == 0:
        raise ValueError("prompts is empty; at least one prompt is needed")
    for number, prompt in enumerate(prompts):
        is_tokens = isinstance(prompt, Tensor) and prompt.dtype == torch.int64
        if not is_tokens or prompt.dim() != 1 or len(prompt) == 0:
            kind = tuple(prompt.shape) if is_tokens else getattr(prompt, "dtype", type(prompt))
            raise ValueError(
                f"prompts[{number}] must be int64 tokens (P,) with P of at least 1, got {kind}"
            )
