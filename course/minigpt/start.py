"""Lesson 00: Start here.

Built from solutions/00-start/start.py by `make build`: change it there.
"""


def matmul_flops(m: int, k: int, n: int) -> int:
    """Floating-point operations of the product of an (m, k) and a (k, n) matrix.

    A multiply-add counts as 2.
    """
    return 2 * m * k * n


def matmul_bytes(m: int, k: int, n: int, bytes_per_element: int) -> int:
    """Bytes that the product of an (m, k) and a (k, n) matrix must move at least.

    Both matrices are read once and the output is written once; all have elements of the same width.
    """
    return (m * k + k * n + m * n) * bytes_per_element
