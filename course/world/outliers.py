"""Put outlier channels into a model's keys, and measure caches on it.

Large models have key channels that are ten times as large as the others; a small one may have none.
Here they are put in without changing what the model says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from course.model import MiniGPT
from course.model.bounds import check_between
from course.model.cache import KVCacheLike

Forward = Callable[[MiniGPT, Tensor, KVCacheLike], Tensor]


@torch.no_grad()
def with_outliers(model: MiniGPT, n_pairs: int, factor: float) -> MiniGPT:
    """Copy the model with some key channels made `factor` times as large.

    The matching query channels are as much smaller, so every score, and every logit, stays what it
    was up to rounding. Rotary positions turn channels in pairs (i, i + D/2), so whole pairs grow.

    Args:
        model: not changed.
        n_pairs: pairs of channels in each head, 1 … D/2: the slowest ones, which turn least.
        factor: above 0.
    """
    D = model.config.head_dim
    check_between("n_pairs", n_pairs, 1, D // 2)
    if not factor > 0:
        raise ValueError(f"factor must be above 0, got {factor!r}")
    model = copy.deepcopy(model)
    large = torch.arange(D) % (D // 2) >= D // 2 - n_pairs  # (D,) bool
    by = torch.where(large, factor, 1.0)  # (D,)
    for block in model.blocks:
        attn = block.attn
        attn.wk.weight.mul_(by.repeat(attn.n_kv_heads).unsqueeze(1))  # (G·D, C)
        attn.wq.weight.div_(by.repeat(attn.n_heads).unsqueeze(1))  # (H·D, C)
    return model


class BothPerToken:
    """A cache that stores keys as another one stores values, for example rounded token by token.

    It is made of two such caches; each gives back only what it was handed as values.

    Args:
        new: makes one empty cache.
    """

    def __init__(self, new: Callable[[], KVCacheLike]) -> None:
        self._keys, self._values = new(), new()
        self.max_len = self._keys.max_len

    def __len__(self) -> int:
        return len(self._keys)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self._keys.append(layer, k, k)[1], self._values.append(layer, v, v)[1]

    def advance(self, n: int) -> None:
        self._keys.advance(n)
        self._values.advance(n)

    def truncate(self, n: int) -> None:
        self._keys.truncate(n)
        self._values.truncate(n)

    def reset(self) -> None:
        self.truncate(0)

    def nbytes(self) -> int:
        return self._keys.nbytes() + self._values.nbytes()


class StoredAs:
    """A cache of a narrow type, for a model that computes in a wider one.

    Args:
        cache: keys and values are turned into its type on their way in, and back on their way out.
        dtype: that type.
        rounded_to: a still narrower one, through which they go first.
    """

    def __init__(
        self, cache: KVCacheLike, dtype: torch.dtype, rounded_to: torch.dtype | None = None
    ) -> None:
        self._cache, self._types = cache, (rounded_to or dtype, dtype)
        self.max_len = cache.max_len

    def __len__(self) -> int:
        return len(self._cache)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        first, then = self._types
        keys, values = self._cache.append(layer, *(x.to(first).to(then) for x in (k, v)))
        return keys.to(k.dtype), values.to(v.dtype)

    def advance(self, n: int) -> None:
        self._cache.advance(n)

    def truncate(self, n: int) -> None:
        self._cache.truncate(n)

    def reset(self) -> None:
        self._cache.reset()

    def nbytes(self) -> int:
        return self._cache.nbytes()


def through_a_cache(
    model: MiniGPT,
    forward_cached: Forward,
    new_cache: Callable[[int, int], KVCacheLike],
    chunk: int = 8,
) -> Callable[[Tensor], Tensor]:
    """Make a function tokens (B, T) -> logits (B, T, V), for `course.world.evaluation.evaluate`, that
    reads the text through a cache, `chunk` tokens at a time.

    Args:
        new_cache: called as new_cache(batch, max_len).
    """

    def forward(tokens: Tensor) -> Tensor:
        cache = new_cache(*tokens.shape)
        parts = [forward_cached(model, part, cache) for part in tokens.split(chunk, dim=1)]
        return torch.cat(parts, dim=1)

    return forward
