"""Known wrong answers to lesson 16."""

from __future__ import annotations

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("mixture_of_experts")

bug = MUSEUM.section("double", check="doubles")


@bug("formula", "a square in the place of twice the number")
def squares(x):
    """Takes twice for squared."""
    return x * x
