"""Known wrong answers to lesson 04, a file for each function that students write."""

from autograder.lessons.prefill_and_decode.museum import (
    latency_metrics,
    pad_prompts,
    prefill,
    ragged_mask,
    ragged_positions,
    stream,
)
from autograder.lessons.prefill_and_decode.museum.collection import MUSEUM

__all__ = [
    "MUSEUM",
    "latency_metrics",
    "pad_prompts",
    "prefill",
    "ragged_mask",
    "ragged_positions",
    "stream",
]
