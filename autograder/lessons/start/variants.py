"""Right answers to lesson 00 in other styles: every check must pass them."""

import math

from autograder.lessons.exhibits import Edits, Variant


def flops_of_each_output(m, k, n):
    return sum(k + k for _ in range(m) for _ in range(n))


def bytes_of_shapes(m, k, n, bytes_per_element):
    return sum(math.prod(shape) * bytes_per_element for shape in [(m, k), (k, n), (m, n)])


def float_bytes(m, k, n, bytes_per_element):
    return float(bytes_per_element) * (k * (m + n) + m * n)


VARIANTS = [
    Variant("one_by_one", {"matmul_flops": flops_of_each_output, "matmul_bytes": bytes_of_shapes}),
    Variant("floats", {"matmul_flops": Edits((("2 *", "2.0 *"),)), "matmul_bytes": float_bytes}),
]
