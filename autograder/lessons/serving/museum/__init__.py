"""Known wrong answers to lesson 11."""

from autograder.lessons.serving.museum import counting, plan, scheduler
from autograder.lessons.serving.museum.collection import MUSEUM

__all__ = ["MUSEUM", "counting", "plan", "scheduler"]
