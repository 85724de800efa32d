"""Attention of one new token over a quantized cache that is never dequantized as a whole.

    out = tiled_attention(q, keys, values, window)      # what dequantizing everything gives

A step that first turns all codes back into numbers writes the large cache after all, waits for fresh
memory, and reads what it wrote. Here a block of codes becomes numbers in a scratch that stays in the
processor's cache, is used, and is overwritten by the next. From memory come codes and little else.

The softmax needs the largest score and the sum of all weights, and both are known only at the end.
So they run along: when a block brings a larger score, everything so far is scaled down to it
(Milakov and Gimelshein 2018; Dao et al. 2022). What differs from attention in one go is rounding:
within 1e-5 of numbers around 1 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 16_384  # of the scratch, over all KV heads: 8 MiB of float32 at D = 128


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


def tiled_attention(
    q: Tensor,
    keys: Stored,
    values: Stored,
    window: Window | None = None,
    unpack: Callable[[Tensor], Tensor] = lambda stored: stored,
    scratch: Tensor | None = None,
) -> Tensor:
    """Attention of the newest token, whose own key and value are already held.

    Args:
        q: (B, H, 1, D); head h reads KV head h // (H // G), and no key is copied for it.
        keys, values: all tokens but the newest few.
        window: these few; None: there are none.
        unpack: stored bytes (…, width) to codes (…, D); left out, one code is one byte.
        scratch: from `make_scratch`, to be used again and again; left out, it is made here.

    Returns:
        (B, H, 1, D).

    Raises:
        ValueError: shapes that do not fit, or nothing to attend to.
    """
    check_stored(q, keys, values, window)
    B, H, _, D = q.shape
    G = keys.codes.shape[1]
    q = q.reshape(B, G, H // G, D) / math.sqrt(D)  # the queries of a group are a small matrix
    scratch = make_scratch(q, keys) if scratch is None else scratch

    most = q.new_full((B, G, H // G, 1), -math.inf)  # the largest score so far
    total = torch.zeros_like(most)  # the sum of all weights so far
    out = torch.zeros_like(q)  # values so far, by their weights
    for scores, weigh in _blocks(q, keys, values, window, unpack, scratch):
        higher = torch.maximum(most, scores.amax(-1, keepdim=True))
        fade = (most - higher).exp_()  # what the past is worth beside the new maximum
        weights = (scores - higher).exp_()  # (B, G, R, tokens)
        total = total * fade + weights.sum(-1, keepdim=True)
        out = out * fade + weigh(weights)
        most = higher
    return (out / total).view(B, H, 1, D)


def make_scratch(q: Tensor, keys: Stored, rows: int = ROWS) -> Tensor:
    """Room for `rows` rows of D numbers, or one group if that is more: (B, G, groups, group, D)."""
    B, G, n, group, _ = keys.codes.shape
    return q.new_empty(B, G, min(n, max(1, rows // (B * G * group))), group, q.shape[-1])


def _blocks(
    q: Tensor,
    keys: Stored,
    values: Stored,
    window: Window | None,
    unpack: Callable[[Tensor], Tensor],
    scratch: Tensor,
) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """Of each block the scores (B, G, R, tokens), and a function from weights to weighed values.
    Keys and values take turns in the scratch, so weigh before you ask for the next block."""
    at_once = scratch.shape[2]

    def numbers(stored: Stored, first: int) -> Tensor:  # (B, G, tokens, D)
        codes, scale, zero = (part[:, :, first : first + at_once] for part in stored)
        block = scratch[:, :, : codes.shape[2]]  # the last block may be smaller
        return block.copy_(unpack(codes)).mul_(scale).add_(zero).flatten(2, 3)

    for first in range(0, keys.codes.shape[2], max(1, at_once)):
        scores = q @ numbers(keys, first).transpose(-1, -2)
        yield scores, lambda weights, first=first: weights @ numbers(values, first)
    if window is not None and window[0].shape[2]:
        yield q @ window[0].transpose(-1, -2), lambda weights: weights @ window[1]


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
