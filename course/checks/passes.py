"""Count the forward passes of a model, and record and compare what they give.

Lessons 04 and 12 share this: both ask how many tokens go into each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.checks.check import Challenge
from course.minigpt.kv_cache import KVCache
from course.model import MiniGPT
from course.model.config import GPTConfig


def new_cache(
    challenge: Challenge, batch: int, max_len: int, dtype: torch.dtype = torch.float32
) -> KVCache:
    """Make lesson 03's cache for the challenge's model."""
    return KVCache(GPTConfig(**challenge["config"]), batch=batch, max_len=max_len, dtype=dtype)


LOOKUPS = {
    F.embedding: (1, 0),
    torch.embedding: (0, 1),
    Tensor.__getitem__: (0, 1),
    torch.index_select: (0, 2),
    Tensor.index_select: (0, 2),
}
"""Operations that look rows of a matrix up: the places of the matrix and of the ids among their
arguments."""


class Lookups(TorchFunctionMode):
    """Follow the looks into a model's embedding, with which every forward pass begins: through its
    module, or through operations on its weight.

    Attributes:
        passes: for each look so far, the tokens of each row.
    """

    def __init__(self, model: MiniGPT) -> None:
        super().__init__()
        self.passes: list[int] = []
        self._weight = model.embed.weight.data_ptr()

    def meant(self, ids: Tensor) -> Tensor:
        """Say which rows are looked up for these ids."""
        return ids

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function not in LOOKUPS:
            return function(*args, **kwargs)
        values = [*args, *kwargs.values()]
        matrix, ids = LOOKUPS[function]
        if values[matrix].data_ptr() == self._weight:
            self.passes.append(values[ids].shape[-1])
            values[ids] = self.meant(values[ids])
        named = zip(kwargs, values[len(args) :], strict=True)
        return function(*values[: len(args)], **dict(named))


@contextmanager
def count_passes(model: MiniGPT) -> Iterator[list[int]]:
    """Count the tokens of each row that enter each forward pass inside the `with` block."""
    with Lookups(model) as lookups:
        yield lookups.passes


def largest_difference(result: np.ndarray | str, expected: np.ndarray) -> tuple[int, float]:
    """Find the row of (B, V) logits that differs most, and by how much: infinitely where numbers are
    not finite, or not (B, V)."""
    if isinstance(result, str) or result.shape != expected.shape:
        return 0, np.inf
    delta = np.abs(result.astype(np.float64) - expected).max(axis=-1)
    delta[~np.isfinite(delta)] = np.inf
    row = int(delta.argmax())
    return row, float(delta[row])
