"""Known wrong answers to lesson 09: parts that are merged, and finished."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right

bug = MUSEUM.section("merge", check="any_cut_any_order")


@bug("wiring", "the first row's factors for all rows", kind="batch")
def merges_by_the_first_row(a, b):
    """top[:1] was enough for a batch of one."""
    top = torch.maximum(a.top, b.top)[:1].expand_as(a.top).clone()
    keep_a, keep_b = (a.top[:1] - top).exp(), (b.top[:1] - top).exp()
    return Part(a.out * keep_a + b.out * keep_b, top, a.total * keep_a + b.total * keep_b)


@bug("form", "merged parts in float32, whatever type was given", kind="dtype")
def merges_in_float32(a, b):
    """Tensors that are made without a dtype."""
    return Part(*(x.float() for x in right.merge(a, b)))


bug = MUSEUM.section("merge", check="inputs_stay")

ROOM = {}


@bug("state", "parts that all lie in the same memory", kind="results")
def merges_into_the_same_memory(a, b):
    """Room for a merged part is made once for each shape; the next call writes over it."""
    whole = right.merge(a, b)
    kept = ROOM.setdefault((a.out.shape, a.out.dtype), Part(*map(torch.empty_like, whole)))
    for mine, new in zip(kept, whole, strict=True):
        mine.copy_(new)
    return kept
