"""Define what every KV cache of the course can do, and check what is put into one."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.config import GPTConfig


class CacheFull(Exception):
    """Raised when a cache has no room for the tokens it was given; nothing in it was changed."""


@runtime_checkable
class KVCacheLike(Protocol):
    """Hold the keys and values of the tokens so far, one pair of tensors a layer.

    `forward_cached` uses every cache through these methods: `append` once per layer, then `advance`
    once per forward pass.
    """

    max_len: int

    def __len__(self) -> int:
        """Count the tokens held, the same for every layer."""
        ...

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v (B, G, T, D), keys rotated; return all so far, (B, G, S, D) each.

        Raises:
            CacheFull: no room for T more tokens; nothing was changed.
        """
        ...

    def advance(self, n: int) -> None:
        """Count n tokens more as held: after the last layer, once per forward pass."""
        ...

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget the rest."""
        ...

    def reset(self) -> None:
        """Forget every token."""
        ...

    def nbytes(self) -> int:
        """Count the bytes that the storage occupies, whether filled or not."""
        ...


def check_cache_sizes(config: GPTConfig, batch: int, max_len: int) -> None:
    """Check the sizes of a cache.

    Args:
        config: of the model that will fill the cache.
        batch: rows that are decoded together, at least 1.
        max_len: tokens that the cache will hold at most, 1 … config.max_seq_len.

    Raises:
        ValueError: a size out of these bounds; the message names it.
    """
    check_between("batch", batch, 1, 2**31)
    check_between("max_len", max_len, 1, config.max_seq_len)


def check_block(
    config: GPTConfig, batch: int, dtype: torch.dtype, layer: int, k: Tensor, v: Tensor
) -> None:
    """Check a block of keys and values before a cache stores it.

    Args:
        config, batch, dtype: of the cache.
        layer: 0 … L-1.
        k, v: (B, G, T, D) with T of at least 1, of the cache's dtype.

    Raises:
        ValueError: another layer, shape or dtype; the message names it.
    """
    check_between("layer", layer, 0, config.n_layers - 1)
    for name, tensor in (("keys", k), ("values", v)):
        expected = (batch, config.n_kv_heads, k.shape[2] if k.dim() == 4 else "T", config.head_dim)
        if tuple(tensor.shape) != expected or tensor.shape[2] < 1:
            raise ValueError(
                f"this cache takes {name} of shape (B, G, T, D) = ({batch}, {config.n_kv_heads}, T, "
                f"{config.head_dim}) with T of at least 1, got {tuple(tensor.shape)}"
            )
        if tensor.dtype != dtype:
            raise ValueError(f"this cache holds {dtype}, got {name} of {tensor.dtype}")


def check_appended(pending: Mapping[int, tuple[Tensor, Tensor]], n_layers: int, n: int) -> None:
    """Raise a ValueError, unless every layer was given at least n tokens since the last advance."""
    for layer in range(n_layers if n else 0):
        given = pending[layer][0].shape[2] if layer in pending else 0
        if given < n:
            raise ValueError(f"advance({n}), but layer {layer} was given {given} new tokens")
