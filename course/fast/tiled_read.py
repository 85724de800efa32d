"""Attend with one new token to a quantized cache that is never dequantized as a whole.

    out = tiled_attention(q, keys, values, window)      # what dequantizing everything gives

A step that first turns all codes back into numbers writes the large cache after all, waits for fresh
memory, and reads what it wrote. Here a block of codes is spread out to floats in a scratch that stays
in the processor's cache, is used, and is overwritten by the next, so little but codes is read from
memory. Scales and zeros need no pass over the block, for they can be moved to the other factor:

    q · (zero + scale * code) = q · zero + (q * scale) · code               keys: a scale per channel
    w @ (zero + scale * code) = w @ zero + (w * scale) @ code               values: a scale per token

The softmax needs the largest score and the sum of all weights, and both are known only at the end.
So both are updated from block to block: when one has a larger score, everything so far is scaled
down to it (Milakov and Gimelshein 2018; Dao et al. 2022). Beside attention in one go only rounding
differs: by less than 1e-5 in float32, of numbers around 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course.fast.quantized import Quantized
from course.fast.storage import Window, check_attention_shapes

ROWS = 8192  # of the scratch, over all KV heads: 4 MiB of float32 at D = 128


def tiled_attention(
    q: Tensor,
    keys: Quantized,
    values: Quantized,
    window: Window | None = None,
    unpack: Callable[[Tensor], Tensor] = lambda codes: codes,
    scratch: Tensor | None = None,
) -> Tensor:
    """Attend with the newest token, whose key and value are already in the cache.

    Args:
        q: (B, H, 1, D); head h reads KV head h // (H // G), and no key is copied for it.
        keys, values: all tokens but those of the window, in groups: codes (B, G, n, group, D), or
            narrower where several share a byte.
        window: keys and values (B, G, W, D) of the newest tokens; None: there are none.
        unpack: bytes (…, width) to codes (…, D); left out, one code is one byte.
        scratch: from `make_scratch`, to be used again and again; left out, it is made here.

    Returns:
        (B, H, 1, D).

    Raises:
        ValueError: shapes that do not fit, or nothing to attend to.
    """
    check_attention_shapes(q, keys, values, window)
    B, H, _, D = q.shape
    G = keys.codes.shape[1]
    q = q.reshape(B, G, H // G, D) / math.sqrt(D)  # the queries of a group are a small matrix
    scratch = make_scratch(q, keys) if scratch is None else scratch
    if (*scratch.shape[:2], *scratch.shape[3:]) != (B, G, keys.codes.shape[3], D):
        raise ValueError(f"this scratch {tuple(scratch.shape)} was made for a cache of other sizes")

    maximum = q.new_full((B, G, H // G, 1), -math.inf)  # the largest score so far
    total = torch.zeros_like(maximum)  # the sum of all weights so far
    out = torch.zeros_like(q)  # values so far, by their weights
    for scores, weigh in _blocks(q, keys, values, window, unpack, scratch):
        new_maximum = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        fade = (maximum - new_maximum).exp_()  # scales down what was summed before
        weights = (scores - new_maximum).exp_()  # (B, G, R, tokens)
        total = total * fade + weights.sum(-1, keepdim=True)
        out = out * fade + weigh(weights)
        maximum = new_maximum
    return (out / total).view(B, H, 1, D)


def make_scratch(q: Tensor, keys: Quantized, rows: int = ROWS) -> Tensor:
    """Allocate room for `rows` rows of D numbers, or one group if that is more: (B, G, groups, group,
    D). It does not depend on how many tokens a cache holds, so it serves while the cache grows."""
    B, G, _, group, _ = keys.codes.shape
    return q.new_empty(B, G, max(1, rows // (B * G * max(1, group))), group, q.shape[-1])


def _blocks(
    q: Tensor,
    keys: Quantized,
    values: Quantized,
    window: Window | None,
    unpack: Callable[[Tensor], Tensor],
    scratch: Tensor,
) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
    """Yield for each block its scores (B, G, R, tokens), and a function from weights to the sum of its
    values by these weights. Values overwrite keys in the scratch, and the next block's keys them: call
    the function before you take the next block."""
    at_once = scratch.shape[2]

    def block(groups: Quantized, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Take groups from number `first` on: their codes as floats in the scratch, scale and zero."""
        codes, *steps = (part[:, :, first : first + at_once] for part in groups[:3])
        scale, zero = (step.to(scratch.dtype) for step in steps)
        shape = scratch[:, :, : codes.shape[2]].shape
        # A last, shorter block is contiguous, too: a product would first copy one with gaps.
        spread = scratch.view(-1)[: shape.numel()].view(shape)
        return spread.copy_(unpack(codes)), scale, zero

    def weigh(weights: Tensor, first: int) -> Tensor:
        codes, scale, zero = block(values, first)
        scaled = weights * scale.flatten(2).unsqueeze(2)  # (B, G, R, tokens)
        return scaled @ codes.flatten(2, 3) + weights @ zero.flatten(2, 3)

    for first in range(0, keys.codes.shape[2], at_once):
        codes, scale, zero = block(keys, first)
        by_group = q.unsqueeze(2)  # (B, G, 1, R, D), for each group of keys has its own scales
        scores = (by_group * scale) @ codes.transpose(-1, -2)  # (B, G, n, R, group)
        scores += (by_group * zero).sum(-1, keepdim=True)
        yield scores.transpose(2, 3).flatten(3), functools.partial(weigh, first=first)
    if window is not None and window[0].shape[2]:
        yield q @ window[0].transpose(-1, -2), lambda weights: weights @ window[1]
