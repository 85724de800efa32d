"""Define quantized numbers and the bytes of their cache, and check what goes into either.

The arithmetic is built in lesson 07; `storage.py` stores the groups of its cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import check_cache_sizes
from course.model.config import GPTConfig

BITS = (2, 4, 8)


class Quantized(NamedTuple):
    """Hold numbers as small codes. A code stands for `zero + scale * code`.

    Attributes:
        codes: uint8, 0 … 2**bits - 1, in the shape of the numbers. In memory several codes may share a
            byte: the last dimension is then narrower.
        scale: the step between neighbouring codes, above 0; one for each vector along `dim`, which has
            size 1 here.
        zero: what code 0 stands for, in the shape of `scale`.
        bits: of a code: 2, 4 or 8.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor
    bits: int


class CacheBytes(NamedTuple):
    """Count the bytes of a quantized cache by their purpose."""

    codes: int
    scales: int
    window: int

    @property
    def total(self) -> int:
        """Bytes of codes, scales and window together."""
        return sum(self)


def check_bits(bits: int) -> None:
    """Raise a ValueError that names the value, unless it is a number of bits that codes can have."""
    if type(bits) is not int or bits not in BITS:
        raise ValueError(f"bits must be 2, 4 or 8, got {bits!r}")


def check_finite(name: str, x: Tensor) -> None:
    """Raise a ValueError if a number is NaN or infinite: no scale fits a vector that has one."""
    if not torch.isfinite(x).all():
        raise ValueError(f"{name} hold NaN or infinity, which no code can stand for")


def check_quantizable(x: Tensor, bits: int, dim: int) -> None:
    """Raise a ValueError that names the value, unless x can be quantized along dim."""
    check_bits(bits)
    if not x.is_floating_point():
        raise ValueError(f"only floating-point numbers are quantized, got {x.dtype}")
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        raise ValueError(f"x has {x.dim()} dimensions, {tuple(x.shape)}; there is no dim {dim!r}")
    if x.shape[dim] < 1:
        raise ValueError(f"x {tuple(x.shape)} has nothing along dim {dim}")
    check_finite("the numbers", x)


def check_codes(codes: Tensor, highest: int) -> None:
    """Raise a ValueError, unless these are codes 0 … highest, in uint8, an even number of them in
    the last dimension."""
    if codes.dtype != torch.uint8 or codes.dim() < 1:
        raise ValueError(f"codes are uint8, got {codes.dtype} of shape {tuple(codes.shape)}")
    if codes.shape[-1] % 2:
        raise ValueError(
            f"two codes share a byte, so the last dimension must be even, got {tuple(codes.shape)}"
        )
    if codes.numel() and int(codes.max()) > highest:
        raise ValueError(f"codes run from 0 to {highest}, got {int(codes.max())}")


def check_quantized_sizes(
    config: GPTConfig, batch: int, max_len: int, bits: int, group: int, window: int
) -> None:
    """Raise a ValueError that names the value, unless a quantized cache of these sizes can be used.

    Args:
        config, batch, max_len: as of any cache.
        bits: of a code; the codes of one key must fill whole bytes.
        group: tokens that are quantized together, at least 1.
        window: newest tokens that stay as they are, at least; 0 or more.
    """
    check_cache_sizes(config, batch, max_len)
    check_bits(bits)
    check_between("group", group, 1, 2**31)
    check_between("window", window, 0, 2**31)
    if config.head_dim * bits % 8:
        raise ValueError(
            f"{config.head_dim} codes of {bits} bits (head width and bits) fill no whole bytes"
        )
