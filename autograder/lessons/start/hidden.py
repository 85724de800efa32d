"""The hidden checks of lesson 00: larger shapes than a student can count, and plain formulas."""

from __future__ import annotations

import math
from functools import partial

from course.checks import start as visible
from course.checks.calls import drawn
from course.checks.check import by_name


def flops(m: int, k: int, n: int) -> int:
    """Add up what each of the m·n dot products is: k multiplications and k additions."""
    multiplications = additions = k
    return (multiplications + additions) * m * n


def moved_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Multiply the numbers in (m, k), (k, n) and (m, n) by the width of one."""
    return sum(math.prod(shape) for shape in ((m, k), (k, n), (m, n))) * bytes_per_element


CHECKS = by_name(
    visible.flops_of_one_dot_product.hidden(
        truth=flops, challenge=drawn(partial(visible.draw_dot_products, largest=5_000))
    ),
    visible.flops_of_any_product.hidden(
        truth=flops, challenge=drawn(partial(visible.draw_products, largest=200))
    ),
    visible.bytes_of_three_matrices.hidden(
        truth=moved_bytes, challenge=drawn(partial(visible.draw_products_of_bytes, largest=3_000))
    ),
    visible.bytes_follow_the_element_size,
)
