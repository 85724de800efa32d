"""Refuse PyTorch's ready-made attention where a lesson asks to write attention out."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


class NoReadyMadeAttention(TorchFunctionMode):
    """While it lasts, `F.scaled_dot_product_attention` stops with a RuntimeError.

    Args:
        instead: what the lesson asks for, which the error says.
        option: such as "enable_gqa": only calls with this option stop; None: all do.
    """

    def __init__(self, instead: str, option: str | None = None) -> None:
        super().__init__()
        self._instead, self._option = instead, option

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            if self._option is None:
                raise RuntimeError(f"{function.__name__} is ready-made; {self._instead}")
            if kwargs.get(self._option):
                raise RuntimeError(
                    f"{self._option} of {function.__name__} is ready-made; {self._instead}"
                )
        return function(*args, **kwargs)
