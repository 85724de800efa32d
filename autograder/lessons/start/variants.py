"""Right answers to lesson 00 in other styles: every check must pass them."""

from __future__ import annotations

import math

from autograder.lessons.exhibits import Variant


def flops_of_each_output(m: int, k: int, n: int) -> int:
    """Adds up one output after another."""
    per_output = k + k
    return sum(per_output for _ in range(m) for _ in range(n))


def bytes_of_shapes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    return sum(math.prod(shape) * bytes_per_element for shape in [(m, k), (k, n), (m, n)])


def flops_as_a_float(m: int, k: int, n: int) -> float:
    return 2.0 * m * k * n


def bytes_read_and_written(m: int, k: int, n: int, bytes_per_element: int) -> float:
    read = k * (m + n)
    written = m * n
    return float(bytes_per_element) * (read + written)


VARIANTS = [
    Variant("one_by_one", {"matmul_flops": flops_of_each_output, "matmul_bytes": bytes_of_shapes}),
    Variant("floats", {"matmul_flops": flops_as_a_float, "matmul_bytes": bytes_read_and_written}),
]
