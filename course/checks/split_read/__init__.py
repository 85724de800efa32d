"""The visible checks of lesson 09: parts of attention, how they are merged, and what is read for them."""

from course.checks.split_read.blocks import blocks_where_they_lie
from course.checks.split_read.hidden_keys import parts_nobody_sees
from course.checks.split_read.memory import nothing_large_is_made
from course.checks.split_read.merging import any_cut_any_order, inputs_stay
from course.checks.split_read.parts import parts_say_their_sums
from course.checks.split_read.prefix import prefix_is_read_once
from course.checks.split_read.scores import far_apart_scores

__all__ = [
    "any_cut_any_order",
    "blocks_where_they_lie",
    "far_apart_scores",
    "inputs_stay",
    "nothing_large_is_made",
    "parts_nobody_sees",
    "parts_say_their_sums",
    "prefix_is_read_once",
]
