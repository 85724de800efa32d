"""Follow a model's looks into its embedding: with one of them every forward pass begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.model import MiniGPT

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


class BeforeEachPass(Lookups):
    """Calls a function before each forward pass of a model.

    Args:
        model: whatever its embedding is read through.
        do: called with no arguments.
    """

    def __init__(self, model: MiniGPT, do: Callable[[], object]) -> None:
        super().__init__(model)
        self._do = do

    def meant(self, ids: Tensor) -> Tensor:
        self._do()
        return ids
