"""Count the forward passes of a model, and record and compare what they give.

Lessons 04 and 12 share this: both ask how many tokens go into each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from course.checks.check import Challenge
from course.checks.lookups import Lookups
from course.model import MiniGPT
from course.model.config import GPTConfig

if TYPE_CHECKING:
    from course.minigpt.kv_cache import KVCache


def new_cache(
    challenge: Challenge, batch: int, max_len: int, dtype: torch.dtype = torch.float32
) -> KVCache:
    """Make lesson 03's cache for the challenge's model."""
    from course.minigpt.kv_cache import KVCache  # whoever has not got so far has no such module

    return KVCache(GPTConfig(**challenge["config"]), batch=batch, max_len=max_len, dtype=dtype)


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
