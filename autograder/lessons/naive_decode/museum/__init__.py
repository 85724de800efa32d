"""Known wrong answers to lesson 02, by what students write."""

from autograder.lessons.naive_decode.museum import (
    counts,
    generations,
)
from autograder.lessons.naive_decode.museum.collection import MUSEUM

__all__ = [
    "MUSEUM",
    "counts",
    "generations",
]
