"""One layer of a quantized cache as plain tensors: what the fast reads take, and what they refuse."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Stored(NamedTuple):
    """Keys or values of n groups of tokens, oldest first; a code stands for zero + scale * code.

    Attributes:
        codes: (B, G, n, group, D) uint8, or narrower where several codes share a byte.
        scale, zero: (B, G, n, 1, D) for keys, one per channel of a group; (B, G, n, group, 1) for
            values, one per token.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor


Window = tuple[Tensor, Tensor]  # keys and values (B, G, W, D) in full precision


def check_stored(q: Tensor, keys: Stored, values: Stored, window: Window | None) -> None:
    """Raise a ValueError that names the shapes, unless one token can attend to these."""
    got = [tuple(part.shape) for part in (q, *keys, *values, *(window or ()))]
    match got:
        case [(B, H, 1, D), (_, G, n, group, width), *_] if G and H % G == 0:
            codes = (B, G, n, group, width)
            W = got[-1][2] if window and len(got[-1]) == 4 else 0
            steps = [[(B, G, n, 1, D)] * 2, [(B, G, n, group, 1)] * 2]
            rows = [(B, G, W, D)] * 2 if window else []
            if got == [(B, H, 1, D), codes, *steps[0], codes, *steps[1], *rows] and n * group + W:
                return
    raise ValueError(
        "one token attends to at least one: q (B, H, 1, D), codes (B, G, n, group, width), G a divisor "
        "of H, scale and zero (B, G, n, 1, D) of keys and (B, G, n, group, 1) of values, window "
        f"(B, G, W, D); got {got}"
    )
