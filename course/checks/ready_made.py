"""Refuse PyTorch's ready-made attention where a lesson asks to write attention out."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


class WrittenOut(TorchFunctionMode):
    """While it lasts, `F.scaled_dot_product_attention` stops with an error.

    Args:
        option: only a call with this option does, "enable_gqa".
        instead: what the lesson asks for, and the error says.
    """

    def __init__(self, instead: str, option: str | None = None) -> None:
        super().__init__()
        self._instead, self._option = instead, option

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention and kwargs.get(
            self._option, not self._option
        ):
            option = f" with {self._option}" * bool(self._option)
            raise RuntimeError(f"{function.__name__}{option} is ready-made; {self._instead}")
        return function(*args, **kwargs)
