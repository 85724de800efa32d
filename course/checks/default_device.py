"""Find functions that make tensors where their inputs do not lie, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

MISPLACED = (
    "its tensors were given on the cpu, while PyTorch's default device was another, as on a machine "
    "with a GPU: {found}. Which of your lines makes a tensor and does not say where?"
)


def beside_default(call: Callable[[], Any]) -> str:
    """Run a call on tensors of the CPU while new ones lie on another device unless told otherwise.

    That is `meta`, which every machine has and whose tensors hold no numbers. A function that makes each
    tensor where its inputs lie does not notice.

    Returns:
        "" where all that came back lies on the CPU; otherwise what happened, in words.
    """
    try:
        with torch.device("meta"):
            result = call()
    except NotImplementedError as error:
        if "meta" not in str(error):
            raise
        return "it stopped"
    except Exception as error:
        return f"it stopped with {type(error).__name__}"
    places = {str(x.device) for x in tree_leaves(result) if isinstance(x, Tensor)}
    return "" if places <= {"cpu"} else f"the result lies on {min(places - {'cpu'})}"


def wrong_device(found: str) -> str | None:
    """Word what `beside_default` found; None where nothing is wrong."""
    return MISPLACED.format(found=found) if found else None
