"""Known wrong answers to lesson 03, by what students write."""

from autograder.lessons.kv_cache.museum import (
    caches,
    causal_masks,
    forward_passes,
    generations,
    growing,
    layers,
)
from autograder.lessons.kv_cache.museum.collection import MUSEUM

__all__ = [
    "MUSEUM",
    "caches",
    "causal_masks",
    "forward_passes",
    "generations",
    "growing",
    "layers",
]
