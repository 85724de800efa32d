"""Find functions that make tensors where their inputs do not lie, on a machine without a GPU.

`meta` is a device that every machine has and whose tensors hold no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

ELSEWHERE = "meta"
MIXED = re.compile("expected device|same device")
"""What PyTorch says where one operation is given tensors of two devices."""
WHO = "Which of your lines makes a tensor and does not say where?"
MISPLACED = (
    "its tensors were given on the cpu, while PyTorch's default device was another, as on a machine "
    "with a GPU: {found}. " + WHO
)
NOT_THE_CPU = 'its tensors were given on another device ("meta", in the place of a GPU), and'


def beside_default(call: Callable[[], Any]) -> str:
    """Run a call on tensors of the CPU while new ones lie on another device unless told otherwise.

    A function that makes each tensor where its inputs lie does not notice.

    Returns:
        "" where all that came back lies on the CPU; otherwise what happened, in words.
    """
    try:
        with torch.device(ELSEWHERE):
            result = call()
    except NotImplementedError as error:
        if ELSEWHERE not in str(error):
            raise
        return "it stopped"
    except Exception as error:
        return f"it stopped with {type(error).__name__}"
    places = {str(x.device) for x in tree_leaves(result) if isinstance(x, Tensor)}
    return "" if places <= {"cpu"} else f"the result lies on {min(places - {'cpu'})}"


def on_another_device(call: Callable[[], Any]) -> str:
    """Run a call on tensors of `meta`; new ones lie on the CPU unless told otherwise, as beside a GPU.

    Code that looks at numbers stops there, which tells nothing.

    Returns:
        "" where nothing was mixed up; otherwise a sentence and a question.
    """
    try:
        result = call()
    except Exception as error:
        if isinstance(error, NotImplementedError) and ELSEWHERE not in str(error):
            raise
        return f"{NOT_THE_CPU} it stopped: {error!s:.100} {WHO}" * bool(MIXED.search(str(error)))
    places = {x.device.type for x in tree_leaves(result) if isinstance(x, Tensor)} - {ELSEWHERE}
    return f"{NOT_THE_CPU} the result lies on the {places.pop()}. {WHO}" if places else ""


def wrong_device(found: str) -> str | None:
    """Word what `beside_default` found; None where nothing is wrong."""
    return MISPLACED.format(found=found) if found else None
