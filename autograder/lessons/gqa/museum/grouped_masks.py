"""Known wrong answers to lesson 06: masks in `grouped_attention`."""

from __future__ import annotations

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right

bug = MUSEUM.section("grouped_attention", check="masks_reach_every_head")


@bug("mask", "attention in which the mask hides nothing")
def grouped_without_mask(q, k, v, mask=None):
    """In decode everything is visible, so the mask is never used."""
    return right.grouped_attention(q, k, v)


HIDDEN = {}


@bug("state", "a mask that is kept from the first call with these sizes", kind="results")
def grouped_with_the_first_mask_of_its_size(q, k, v, mask=None):
    """The mask is turned round once for each size, and kept: masks of one size are alike."""
    if mask is not None:
        mask = HIDDEN.setdefault((q.shape[2], k.shape[2]), mask.clone())
    return right.grouped_attention(q, k, v, mask)
