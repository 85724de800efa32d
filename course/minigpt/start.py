"""Lesson 00: Start here.

Built from solutions/00-start/start.py by `make build`: change it there.
"""

import torch


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


def rms_norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Divide each row by the root of (the mean of its squares, plus eps). Zhang & Sennrich 2019.

    Args:
        x: rows of D numbers, of any floating-point type: (..., D), with any axes before the last.
        eps: a small number, for which a row of zeros stays zeros.

    Returns:
        A new tensor of the same shape, dtype and device.
    """
    mean_squares = x.square().mean(dim=-1, keepdim=True)  # (..., 1)
    return x / (mean_squares + eps).sqrt()
