"""Known wrong answers to lesson 09, by the function that students write."""

from autograder.lessons.split_read.museum import blocks, loops, merging, parts, prefix
from autograder.lessons.split_read.museum.collection import MUSEUM

__all__ = ["MUSEUM", "blocks", "loops", "merging", "parts", "prefix"]
