"""Known wrong answers to lesson 09: the sums of one part."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right

bug = MUSEUM.section("attend_part", check="parts_say_their_sums")


@bug("form", "float32 sums, whatever type was given", kind="dtype")
def part_in_float32(q, k, v, mask=None):
    """Room for the sums is made without a dtype."""
    return Part(*(x.float() for x in right.attend_part(q, k, v, mask)))


bug = MUSEUM.section("attend_part", check="parts_say_their_sums")


@bug("cost", "keys that are made contiguous before they are read", kind="cost")
def part_makes_keys_contiguous(q, k, v, mask=None):
    """contiguous(), in case a view() complains: each part is copied out of the cache."""
    return right.attend_part(q, k.clone(memory_format=torch.contiguous_format), v.clone(), mask)
