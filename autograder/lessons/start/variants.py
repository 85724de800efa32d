"""Right answers to lesson 00 in other styles: every check must pass them."""

import math
from fractions import Fraction
from functools import reduce
from operator import mul

import numpy as np
import torch
from torch.nn import functional as F

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


def norm_of_pytorch(x, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], eps=eps)


def norm_row_by_row(x, eps=1e-6):
    y = torch.empty_like(x)
    for place in np.ndindex(*x.shape[:-1]):
        y[place] = x[place] * torch.rsqrt(x[place].dot(x[place]) / len(x[place]) + eps)
    return y


def norm_in_double(x, eps=1e-6):
    rows = x.double()
    squares = torch.einsum("...d,...d->...", rows, rows) / x.shape[-1]
    return (rows * (squares + eps).pow(-0.5).unsqueeze(-1)).to(x)


def norm_by_length(x, eps=1e-6):
    D = x.size(-1)
    divisor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square().add(D * eps).sqrt()
    return D**0.5 * (x / divisor)


VARIANTS = [
    Variant(
        "one_by_one",
        {
            "matmul_flops": flops_of_each_output,
            "matmul_bytes": bytes_of_shapes,
            "rms_norm": norm_row_by_row,
        },
    ),
    Variant(
        "floats",
        {
            "matmul_flops": Edits((("2 *", "2.0 *"),)),
            "matmul_bytes": float_bytes,
            "rms_norm": norm_of_pytorch,
        },
    ),
    Variant(
        "numpy",
        {
            "matmul_flops": flops_by_numpy,
            "matmul_bytes": bytes_by_numpy,
            "rms_norm": norm_in_double,
        },
    ),
    Variant(
        "fractions",
        {
            "matmul_flops": flops_by_reduce,
            "matmul_bytes": bytes_by_fractions,
            "rms_norm": norm_by_length,
        },
    ),
]
