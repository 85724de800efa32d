"""Right answers to lesson 16 in other styles: every check must pass them."""

from __future__ import annotations

from autograder.lessons.exhibits import Variant


def double_by_adding(x):
    return x + x


VARIANTS = [Variant("adding", {"double": double_by_adding})]
