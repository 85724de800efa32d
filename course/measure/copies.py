"""Count the old numbers that a cache copies, step by step.

copied = count_copied(GrowingKVCache(config, batch=1), config, n_tokens=512)
sum(copied)  # numbers of older tokens that were written into new memory
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from course.measure.allocations import watch_new_tensors
from course.model.config import GPTConfig


class _Cache(Protocol):
    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]: ...
    def advance(self, n: int) -> None: ...


def count_copied(cache: _Cache, config: GPTConfig, n_tokens: int) -> list[int]:
    """Append tokens one at a time to every layer, for one row; count what each step copies.

    Numbers that PyTorch's operations write into new memory are counted, without the keys and values of
    the new token itself, which have to be written somewhere. Writing in place makes no new memory.
    """
    copied = []
    for _ in range(n_tokens):
        shape = (2, config.n_layers, 1, config.n_kv_heads, 1, config.head_dim)
        k, v = torch.zeros(shape)
        with watch_new_tensors(k, v) as made:
            for layer in range(config.n_layers):
                cache.append(layer, k[layer], v[layer])
        cache.advance(1)
        new = sum(tensor.numbers for tensor in made.tensors if tensor.made_by != "elsewhere")
        copied.append(max(0, new - k.numel() - v.numel()))
    return copied
