"""Four slips in a KV cache, each of which keeps every shape."""

from __future__ import annotations

import torch
from torch import Tensor

from course.model import MiniGPT


def wrong_caches(cache: type, model: MiniGPT) -> dict[str, type]:
    """Put one slip each into a class of caches, such as the student's own.

    Args:
        cache: a `KVCacheLike`, of which each result is a subclass.
        model: fills the caches; one slip rotates keys as it does.

    Returns:
        The classes by what is wrong with them.
    """

    class NeverAdvanced(cache):
        def advance(self, n: int) -> None:
            pass

    class OneLayerForAll(cache):
        def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return super().append(0, k, v)

    class RotatedAgain(cache):
        def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            k, v = super().append(layer, k, v)
            return model.blocks[layer].attn.rotate(k, torch.arange(k.shape[2])), v

    class OneTokenShort(cache):
        def advance(self, n: int) -> None:
            super().advance(max(1, n - 1))

    return {
        "never advanced": NeverAdvanced,
        "one layer for all": OneLayerForAll,
        "keys rotated again": RotatedAgain,
        "prompt one token short": OneTokenShort,
    }
