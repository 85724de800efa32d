"""Count the rows of keys that a model computes.

with count_kv_rows(model) as count:
    model(tokens)
count.rows  # tokens for which a key was computed, in one layer
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from course.model import MiniGPT


@dataclass
class KVRowCount:
    """Hold the number of tokens for which a key, and with it a value, was computed.

    Attributes:
        by_layer: for each layer, the rows (B·T) of each use of its `wk`, in order of time.
    """

    by_layer: list[list[int]] = field(repr=False)

    @property
    def per_call(self) -> list[int]:
        """List the rows of each forward pass, in one layer.

        Raises:
            ValueError: the layers did not all do the same, so there is no one answer.
        """
        for layer, calls in enumerate(self.by_layer):
            if calls != self.by_layer[0]:
                raise ValueError(
                    f"the layers computed keys for different numbers of tokens: layer 0 for "
                    f"{self.by_layer[0]}, layer {layer} for {calls}; every forward pass must use "
                    f"each layer's wk once, on the same tokens"
                )
        return list(self.by_layer[0])

    @property
    def rows(self) -> int:
        """Add up the rows of all forward passes, in one layer."""
        return sum(self.per_call)


@contextmanager
def count_kv_rows(model: MiniGPT) -> Iterator[KVRowCount]:
    """Count the rows that go through every layer's `attn.wk` inside the `with` block.

    A forward pass of tokens (B, T) counts B·T. The model computes as before; its hooks are removed at
    the end.

    Raises:
        ValueError: `model` is not a MiniGPT.
    """
    if not isinstance(model, MiniGPT):
        raise ValueError(f"model must be a MiniGPT, got {type(model).__name__}")
    count = KVRowCount(by_layer=[[] for _ in model.blocks])
    handles = [
        block.attn.wk.register_forward_hook(_note_rows(calls))
        for block, calls in zip(model.blocks, count.by_layer, strict=True)
    ]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()


def _note_rows(calls: list[int]):
    def hook(_: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> None:
        (x,) = inputs  # (B, T, C)
        calls.append(x.shape[:-1].numel())

    return hook
