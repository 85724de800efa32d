"""Wrong answers to `greedy_next` and `sample_next`: what they refuse, and how."""

from autograder.lessons.exhibits import Edits
from autograder.lessons.mini_gpt.museum import MUSEUM

REFUSE_SHAPE = (
    "    if logits.dim() != 2:\n"
    '        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")\n'
)
REFUSE_TEMPERATURE = (
    "    if not temperature > 0:\n"
    '        raise ValueError(f"temperature must be above 0, got {temperature}; see greedy_next")\n'
)
REFUSE_TOP_K = (
    "    if top_k is not None and not 1 <= top_k <= V:\n"
    '        raise ValueError(f"top_k must lie in 1 … {V}, got {top_k}")\n'
)
bug = MUSEUM.section("greedy_next", check="bad_arguments_are_refused")


@bug(
    "arguments",
    "functions that look at none of their arguments",
    sample_next=Edits(((REFUSE_SHAPE, ""), (REFUSE_TEMPERATURE, ""), (REFUSE_TOP_K, ""))),
)
def nothing_refused(logits):
    """No check at the door: temperature 0 gives NaN, and 3-D logits a wrong shape."""
    return logits.argmax(dim=-1)
