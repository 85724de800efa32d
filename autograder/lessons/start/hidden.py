"""The hidden checks of lesson 00: larger shapes than a student can count, and plain formulas."""

from __future__ import annotations

import numpy as np

from course.checks import start as visible
from course.checks.check import by_name


def flops(m: int, k: int, n: int) -> int:
    """m·n dot products, each of k multiplications and k additions."""
    return sum(k + k for _ in range(m * n))


def moved_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Numbers in (m, k), (k, n) and (m, n), and the width of one."""
    return sum(int(np.prod(shape)) for shape in ((m, k), (k, n), (m, n))) * bytes_per_element


CHECKS = by_name(
    visible.make_one_dot_product(flops, largest=5_000),
    visible.make_any_product(flops, largest=200),
    visible.make_three_matrices(moved_bytes, largest=3_000),
    visible.make_element_sizes(),
)
