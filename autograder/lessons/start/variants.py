"""Right answers to lesson 00 in other styles: every check must pass them."""

import math
from fractions import Fraction
from functools import reduce
from operator import mul

import numpy as np

from autograder.lessons.exhibits import Edits, Variant


def flops_of_each_output(m, k, n):
    return sum(k + k for _ in range(m) for _ in range(n))


def bytes_of_shapes(m, k, n, bytes_per_element):
    return sum(math.prod(shape) * bytes_per_element for shape in [(m, k), (k, n), (m, n)])


def float_bytes(m, k, n, bytes_per_element):
    return float(bytes_per_element) * (k * (m + n) + m * n)


def flops_by_numpy(m, k, n):
    return 2 * np.prod([m, k, n], dtype=np.int64)


def bytes_by_numpy(m, k, n, bytes_per_element):
    return np.int64(bytes_per_element) * np.dot([m, k, n], [k, n, m])


def flops_by_reduce(m, k, n):
    return reduce(mul, (m, k, n), 2)


def bytes_by_fractions(m, k, n, bytes_per_element):
    return Fraction(8 * bytes_per_element, 8) * (k * (m + n) + m * n)


VARIANTS = [
    Variant("one_by_one", {"matmul_flops": flops_of_each_output, "matmul_bytes": bytes_of_shapes}),
    Variant("floats", {"matmul_flops": Edits((("2 *", "2.0 *"),)), "matmul_bytes": float_bytes}),
    Variant("numpy", {"matmul_flops": flops_by_numpy, "matmul_bytes": bytes_by_numpy}),
    Variant("fractions", {"matmul_flops": flops_by_reduce, "matmul_bytes": bytes_by_fractions}),
]
