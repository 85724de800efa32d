"""Random codes for the two fast reads of a quantized cache, and what attention over them must give.

The numbers are made from the codes, not the codes from numbers: nothing here can round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from course.fast.quantized import Quantized
from course.fast.storage import Window


class Case(NamedTuple):
    """Sizes of a cache and of the query that reads it."""

    bits: int = 8
    B: int = 2
    H: int = 4
    G: int = 2
    D: int = 16
    n: int = 5
    group: int = 7
    W: int = 3


class Drawn(NamedTuple):
    q: Tensor
    keys: Quantized
    values: Quantized
    window: Window | None
    k: Tensor  # (B, G, S, D): what the codes stand for, and the window
    v: Tensor


def draw(case: Case, seed: int = 0) -> Drawn:
    """Draw a query, a quantized cache and the same cache as numbers. Keys have offsets and steps that
    differ by a factor of 10 from channel to channel, and some scores stand far above the others."""
    bits, B, H, G, D, n, group, W = case
    random = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random)

    def quantized(*steps: int) -> tuple[Quantized, Tensor]:
        codes = torch.randint(2**bits, (B, G, n, group, D), generator=random, dtype=torch.uint8)
        scale = (0.1 + rand(*steps)) * 4 / 2**bits
        zero = -3 * rand(*steps)
        q = Quantized(packed(codes, bits), scale, zero, bits)
        return q, (zero + scale * codes).flatten(2, 3)

    q = 6 * rand(B, H, 1, D) - 3
    (keys, k), (values, v) = quantized(B, G, n, 1, D), quantized(B, G, n, group, 1)
    window = (2 * rand(B, G, W, D) - 1, 2 * rand(B, G, W, D) - 1) if W else None
    if window:
        k, v = torch.cat([k, window[0]], dim=2), torch.cat([v, window[1]], dim=2)
    return Drawn(q, keys, values, window, k, v)


def packed(codes: Tensor, bits: int) -> Tensor:
    """Pack several codes into a byte, the first in the lowest bits."""
    parts = codes.unflatten(-1, (-1, 8 // bits)).int()  # (…, width, codes of a byte)
    return (parts << bits * torch.arange(8 // bits)).sum(-1).to(torch.uint8)


def unpack(codes: Tensor, bits: int) -> Tensor:
    """Give the codes in bytes of `packed`."""
    parts = codes.unsqueeze(-1).int() >> bits * torch.arange(8 // bits)
    return (parts % 2**bits).flatten(-2).to(torch.uint8)


def reference(drawn: Drawn) -> Tensor:
    """Attend to everything, head by head, in float64: (B, H, 1, D)."""
    B, H, _, D = drawn.q.shape
    R = H // drawn.k.shape[1]
    out = torch.empty(B, H, 1, D, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            k, v = drawn.k[b, h // R].double(), drawn.v[b, h // R].double()  # (S, D)
            scores = drawn.q[b, h].double() @ k.T / math.sqrt(D)  # (1, S)
            out[b, h] = scores.softmax(-1) @ v
    return out
