"""Known wrong answers to lesson 06, by the function that students write."""

from autograder.lessons.gqa.museum import (
    grouped_attention,
    grouped_copies,
    grouped_masks,
    max_batch_that_fits,
    mean_pool_kv_heads,
    repeat_kv,
)
from autograder.lessons.gqa.museum.collection import MUSEUM

__all__ = [
    "MUSEUM",
    "grouped_attention",
    "grouped_copies",
    "grouped_masks",
    "max_batch_that_fits",
    "mean_pool_kv_heads",
    "repeat_kv",
]
