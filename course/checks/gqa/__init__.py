"""The visible checks of lesson 06: attention that shares keys, pooled heads, and what fits."""

from course.checks.gqa.attention import grouped_equals_repeated
from course.checks.gqa.copies import nothing_is_expanded
from course.checks.gqa.heads import heads_stand_in_a_row
from course.checks.gqa.masks import masks_reach_every_head
from course.checks.gqa.memory import batch_fills_the_memory, edge_of_the_memory
from course.checks.gqa.pooling import pooled_heads_are_means, pooling_keeps_the_rest

__all__ = [
    "batch_fills_the_memory",
    "edge_of_the_memory",
    "grouped_equals_repeated",
    "heads_stand_in_a_row",
    "masks_reach_every_head",
    "nothing_is_expanded",
    "pooled_heads_are_means",
    "pooling_keeps_the_rest",
]
