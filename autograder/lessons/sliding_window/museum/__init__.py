"""Known wrong answers to lesson 08, by what students write."""

from autograder.lessons.sliding_window.museum import bytes_, caches, masks, places, returning
from autograder.lessons.sliding_window.museum.collection import MUSEUM

__all__ = ["MUSEUM", "bytes_", "caches", "masks", "places", "returning"]
