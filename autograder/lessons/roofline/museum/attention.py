"""Wrong answers to `attention_flops`."""

from __future__ import annotations

import numpy as np

from autograder.lessons.roofline.museum import MUSEUM
from course.minigpt import roofline as right

bug = MUSEUM.section("attention_flops", check="attention_is_causal")


# --- large numbers, and numbers that are kept ----------------------------------------------------

SEEN = {}


@bug("state", "numbers that are kept from another call", kind="results")
def keeps_counts_by_tokens(config, n_new, n_past, batch=1):
    """A dict of results whose keys are T and P: another model or batch gets the first one's number."""
    if (n_new, n_past) not in SEEN:
        SEEN[n_new, n_past] = right.attention_flops(config, n_new, n_past, batch)
    return SEEN[n_new, n_past]


@bug("form", "a count in whole numbers of 32 bits", kind="sizes")
def counts_in_32_bits(config, n_new, n_past, batch=1):
    """np.int32, or a C compiler's int: beyond 2**31 it begins anew below 0."""
    return (right.attention_flops(config, n_new, n_past, batch) + 2**31) % 2**32 - 2**31


@bug("form", "a count in float32, which keeps seven digits", kind="sizes")
def counts_in_float32(config, n_new, n_past, batch=1):
    """torch.tensor of floats: beyond 2**24 not every whole number is there."""
    return float(np.float32(right.attention_flops(config, n_new, n_past, batch)))
