"""Known wrong answers to lesson 05, a file a function."""

from autograder.lessons.roofline.museum import attention, bills, roofs, timers
from autograder.lessons.roofline.museum.collection import MUSEUM

__all__ = ["MUSEUM", "attention", "bills", "roofs", "timers"]
