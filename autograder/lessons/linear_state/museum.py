"""Known wrong answers to lesson 17."""

from __future__ import annotations

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("linear_state")

bug = MUSEUM.section("double", check="doubles")


@bug("formula", "a square in the place of twice the number")
def squares(x):
    """Takes twice for squared."""
    return x * x
