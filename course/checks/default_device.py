"""Find functions that make tensors where their inputs do not lie, on a machine without a GPU.

What a function is given stays on the CPU, in the place of a GPU. What it makes and does not say where,
or by the name "cpu" that is written in its code, lies on `meta`, in the place of the CPU: a device that
every machine has, and whose tensors hold no numbers. As beside a GPU, single numbers and indices may lie
on either device, and all else must lie together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

ELSEWHERE = "meta"
MIXED = re.compile("expected device|same device|on device")
"""What PyTorch says where one operation is given tensors of two devices."""
MAKERS = frozenset(
    getattr(torch, name)
    for name in (
        *("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint"),
        *("randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros"),
    )
)
"""Functions that make a tensor, on the default device unless they are told another."""


class MadeElsewhere(TorchFunctionMode):
    """Puts what is made, and not told where, on `meta`; single numbers stay, which go with any device."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            function is F.scaled_dot_product_attention
        ):  # on the CPU it does not look where its mask lies
            tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            if len({x.device for x in tensors}) > 1:
                raise RuntimeError("query, key, value and mask do not lie on the same device")
        result = function(*args, **kwargs)
        if function not in MAKERS or not result.dim():
            return result
        is_told = _is_told(kwargs.get("device"), inspect.currentframe().f_back)
        return result if is_told else result.to(ELSEWHERE)


def _is_told(device: Any, frame: FrameType) -> bool:
    """Tell whether a device comes from a caller's inputs: it is one of PyTorch's, or a name that the code
    in this frame made of a tensor or a device, neither written there nor an argument."""
    if not isinstance(device, str):
        return isinstance(device, torch.device)
    code, values = frame.f_code, frame.f_locals
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    is_named = device in code.co_consts or any(values.get(name) == device for name in arguments)
    return not is_named and any(isinstance(v, Tensor | torch.device) for v in values.values())


def beside_default(call: Callable[[], Any]) -> str:
    """Run a call on tensors of the CPU while new ones lie on another device unless told otherwise.

    A function that makes each tensor where its inputs lie does not notice.

    Returns:
        "" where all that came back lies on the CPU; otherwise what happened, in a few words. See
        `rules.wrong_device`.
    """
    try:
        with MadeElsewhere():
            result = call()
    except Exception as error:
        if MIXED.search(str(error)):
            return f"it mixed both, and stopped with {type(error).__name__}"
        if isinstance(error, NotImplementedError) and ELSEWHERE not in str(error).lower():
            raise
        return ""  # it looks at numbers, or stops for another reason, which tells nothing
    places = {str(x.device) for x in tree_leaves(result) if isinstance(x, Tensor)}
    return "" if places <= {"cpu"} else "its result lies on the other"
