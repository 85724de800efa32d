"""Known wrong answers to lesson 01, by what students write."""

from autograder.lessons.mini_gpt.museum import (
    attention,
    greedy,
    heads,
    layers,
    refusals,
    sampling,
)
from autograder.lessons.mini_gpt.museum.collection import MUSEUM

__all__ = ["MUSEUM", "attention", "greedy", "heads", "layers", "refusals", "sampling"]
