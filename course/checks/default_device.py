"""Find functions that make tensors where their inputs do not lie, on a machine without a GPU.

`meta` is a device that every machine has and whose tensors hold no numbers.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

ELSEWHERE = "meta"
WHERE = "Which of your lines makes a tensor and does not say where?"
OF_WHICH_TYPE = "Which of your lines makes a tensor and does not say of which dtype?"
WHERE_IS_CACHE = "What does a new cache have to be told, beside its size and its dtype?"
MIXED = {
    "expected device|same device": WHERE,
    "scalar type|same dtype|dtypes must be": OF_WHICH_TYPE,
}
"""What PyTorch says where one operation is given tensors of two devices or dtypes, and what to ask."""
MISPLACED = (
    "its tensors were given on the cpu, while PyTorch's default device was another, as on a machine "
    "with a GPU: {found}. " + WHERE
)


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


def on_another_device(call: Callable[[], Any], dtype: torch.dtype | None = None) -> str:
    """Run a call on tensors of `meta`; new ones lie on the CPU unless told otherwise, as beside a GPU.

    Code that looks at numbers stops there, which tells nothing.

    Args:
        dtype: that the results must have; None where that is asked elsewhere.

    Returns:
        "" where nothing was mixed up; otherwise what happened, and a question.
    """
    given = f'its tensors were given on another device ("{ELSEWHERE}", in the place of a GPU)'
    if dtype:
        given += f" and in {str(dtype).removeprefix('torch.')}"
    try:
        results = [x for x in tree_leaves(call()) if isinstance(x, Tensor)]
    except Exception as error:
        if isinstance(error, NotImplementedError) and ELSEWHERE not in str(error):
            raise
        mixed = [question for words, question in MIXED.items() if re.search(words, str(error))]
        return "".join(f"{given}, and it stopped ({error!s:.100}). {one}" for one in mixed[:1])
    for x in results:
        if x.device.type != ELSEWHERE:
            return f"{given}, and the result lies on the {x.device.type}. {WHERE}"
        if dtype and x.dtype != dtype:
            return f"{given}, and the result is {x.dtype}. {OF_WHICH_TYPE}"
    return ""


def cache_elsewhere(call: Callable[[], Any]) -> str:
    """Run a call whose model and tokens lie on `meta`, and which makes a cache: does that lie there, too?

    No text can be written there, for a choice looks at numbers. But the first rows are kept before it.

    Returns:
        "" where the cache lies beside its model; otherwise what happened, and a question.
    """
    try:
        call()
    except Exception as error:
        is_kept = any(frame.name == "append" for frame in traceback.extract_tb(error.__traceback__))
        if is_kept and re.search(f"out of {ELSEWHERE}|expected device|same device", str(error)):
            return (
                f'model and tokens were on another device ("{ELSEWHERE}", in the place of a GPU), and '
                f"the cache that was made for them was not. {WHERE_IS_CACHE}"
            )
    return ""


def wrong_device(found: str) -> str | None:
    """Word what `beside_default` found; None where nothing is wrong."""
    return MISPLACED.format(found=found) if found else None
