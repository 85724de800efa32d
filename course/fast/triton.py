"""Attend to codes of 8 or 4 bits on a GPU: `tiled_attention` as Triton kernels. No lesson needs them.

    out = triton_attention(q, keys, values, window)     # what tiled_attention gives

On a GPU hundreds of programs run at once, and none of them can wait for another. So the context is
cut into parts, each read by one program from end to end, and a second kernel joins their results,
as one block after another is joined on a CPU (Dao et al. 2023, Flash-Decoding). Scales and zeros
are moved to the other factor, as on a CPU; codes become numbers in registers only.

Products take float16 on the tensor cores if q has 16 bits, where codes are exact, and float32
otherwise. Tolerance beside attention over the dequantized cache, of numbers around 1: 1e-5 in
float32, 5e-3 in float16, 3e-2 in bfloat16, mostly from rounding the result. On an H200 it reads
262,144 tokens of int8 in 0.32 ms, the fastest plain read of bfloat16 in 0.54 ms
(`python benchmarks/cache.py --device cuda`).
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor

from course.fast.quantized import Quantized
from course.fast.storage import Window, check_attention_shapes

PROGRAMS = 512  # some for each multiprocessor of a large GPU
LAUNCH = {"num_warps": 2, "num_stages": 3}  # the fastest of 8 on an H200: docs/LOG.md
MAX_PARTS = 128  # of one context: the second kernel holds a row of each at once


def triton_attention(
    q: Tensor, keys: Quantized, values: Quantized, window: Window | None = None
) -> Tensor:
    """Attend with the newest token, whose key and value are already in the cache.

    Args:
        q: (B, H, 1, D), D a power of two, at least 16 (32 for 4 bits). With TRITON_INTERPRET=1 in
            the environment it may be on a CPU, to try the arithmetic.
        keys, values: as of `tiled_attention`, of 8 bits or of 4; of two codes in a byte the first is
            in the low bits. Groups of 64 or 128 tokens suit a GPU.
        window: keys and values of the newest tokens.

    Returns:
        (B, H, 1, D) in q's dtype.

    Raises:
        ImportError: Triton is not installed.
        ValueError: other bits, shapes that do not fit, or no CUDA device.
    """
    check_attention_shapes(q, keys, values, window)
    B, H, _, D = q.shape
    G, n, group, width = keys.codes.shape[1:]
    bits = keys.bits
    fit = bits in (8, 4) and values.bits == bits and width * 8 == D * bits and width >= 16
    if not fit or D & (D - 1):
        raise ValueError(
            "codes of 8 or 4 bits fill D * bits / 8 bytes, at least 16, and D is a power of two; "
            f"got keys of {bits!r} bits, values of {values.bits!r}, D = {D} and {width} bytes"
        )
    if q.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"q is on {q.device}, and these kernels run on CUDA; on a CPU take tiled_attention"
        )
    read_part, join, power = _kernels()
    R = H // G
    per_part = max(1, -(-n // min(MAX_PARTS, -(-PROGRAMS // (B * G)))))  # groups of one program
    parts = -(-n // per_part)
    part_out = q.new_empty(B * H, parts, D, dtype=torch.float32)
    maximum, total = q.new_empty(2, B * H, parts, dtype=torch.float32)
    q, out = q.contiguous(), torch.empty_like(q, memory_format=torch.contiguous_format)
    if parts:
        stored = [a for part in (*keys[:3], *values[:3]) for a in _by_head(part)]
        read_part[B * G, parts](
            *(q, *stored, part_out, maximum, total, n, per_part, 1 / math.sqrt(D)),
            *(R, D, group, bits, max(16, power(R)), max(16, power(group)), q.itemsize == 2),
            **LAUNCH,
        )
    recent = window or (q.new_empty(B, G, 0, D),) * 2
    join[B * H,](
        *(q, *_by_head(recent[0]), *_by_head(recent[1]), part_out, maximum, total, out),
        *(parts, recent[0].shape[2], 1 / math.sqrt(D), R, D, power(max(1, parts))),
    )
    return out


def _by_head(part: Tensor) -> tuple[Tensor, int]:
    """Return a tensor (B, G, …) and the distance in memory from one head to the next. A piece of a
    longer cache has such a distance; anything else is copied first."""
    B, G = part.shape[:2]
    if not part[0, 0].is_contiguous() or (B > 1 and part.stride(0) != G * part.stride(1)):
        part = part.contiguous()
    return part, part.stride(1)


@functools.cache
def _kernels() -> tuple[Any, Any, Any]:
    """Make the two kernels; the third is what rounds up to a power of two."""
    global tl, score_group, weigh_group  # the kernels look them up among the names of this module
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise ImportError(
            "triton_attention needs Triton, which comes with torch for CUDA on Linux; for torch "
            "without CUDA: pip install triton. tiled_attention needs nothing and gives the same"
        ) from error
    score_group, weigh_group = triton.jit(_score_group), triton.jit(_weigh_group)
    return triton.jit(_read_part), triton.jit(_join), triton.next_power_of_2


def _read_part(
    q, k_codes, k_codes_head, k_scale, k_scale_head, k_zero, k_zero_head,
    v_codes, v_codes_head, v_scale, v_scale_head, v_zero, v_zero_head,
    part_out, part_maximum, part_total, n, per_part, shrink,
    R: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Attend with all queries of one KV head to one part of the context, group after group.

    With 4 bits a byte holds an even and an odd channel. They are never put side by side: queries
    and outputs are cut into even and odd channels instead, which gives the same and costs nothing.
    """
    head, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    STEP: tl.constexpr = 8 // BITS
    WIDTH: tl.constexpr = D // STEP
    rows, tokens = tl.arange(0, ROWS), tl.arange(0, TOKENS)  # R and GROUP of them are real
    is_query, is_token = rows < R, tokens < GROUP
    channels = STEP * tl.arange(0, WIDTH)
    bytes_ = tokens[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]  # of a group
    where_q = q + (head * R + rows)[:, None] * D + channels[None, :]
    even = (
        tl.load(where_q, mask=is_query[:, None], other=0.0).to(tl.float32) * shrink
    )  # (ROWS, WIDTH)
    odd = even
    if BITS == 4:
        odd = tl.load(where_q + 1, mask=is_query[:, None], other=0.0).to(tl.float32) * shrink
    maximum = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    out_even = tl.zeros((ROWS, WIDTH), tl.float32)
    out_odd = tl.zeros((ROWS, WIDTH), tl.float32)

    for group in range(part * per_part, tl.minimum(part * per_part + per_part, n)):
        # All loads of a group come first: each program then has twice as many bytes on their way.
        where = k_codes + head * k_codes_head + group * GROUP * WIDTH
        k_group = tl.load(where + bytes_, mask=is_token[:, None], other=0)
        where = v_codes + head * v_codes_head + group * GROUP * WIDTH
        v_group = tl.load(where + bytes_, mask=is_token[:, None], other=0)
        v_scales = tl.load(v_scale + head * v_scale_head + group * GROUP + tokens, is_token, 0.0)
        v_zeros = tl.load(v_zero + head * v_zero_head + group * GROUP + tokens, is_token, 0.0)

        scale = k_scale + head * k_scale_head + group * D + channels
        zero = k_zero + head * k_zero_head + group * D + channels
        scores = score_group(even, odd, k_group, scale, zero, BITS, HALF)
        scores = tl.where(is_token[None, :], scores, -float("inf"))  # (ROWS, TOKENS)

        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        fade, weights = tl.exp(maximum - new_maximum), tl.exp(scores - new_maximum[:, None])
        maximum, total = new_maximum, total * fade + tl.sum(weights, 1)
        out_even, out_odd = weigh_group(
            out_even, out_odd, fade, weights, v_group, v_scales, v_zeros, BITS, HALF
        )

    place = (head * R + rows) * tl.num_programs(1) + part
    tl.store(part_maximum + place, maximum, mask=is_query)
    tl.store(part_total + place, total, mask=is_query)
    where = part_out + place[:, None] * D + channels[None, :]
    tl.store(where, out_even, mask=is_query[:, None])
    if BITS == 4:
        tl.store(where + 1, out_odd, mask=is_query[:, None])


def _score_group(even, odd, codes, scale, zero, BITS: tl.constexpr, HALF: tl.constexpr):
    """Score the keys of a group; `scale` and `zero` point at those of its channels."""
    kind: tl.constexpr = tl.float16 if HALF else tl.float32
    low = codes & 15 if BITS == 4 else codes
    scaled = (even * tl.load(scale).to(tl.float32)[None, :]).to(kind)
    scores = tl.dot(scaled, tl.trans(low.to(kind)), input_precision="ieee")
    scores += tl.sum(even * tl.load(zero).to(tl.float32)[None, :], 1)[:, None]
    if BITS == 4:
        scaled = (odd * tl.load(scale + 1).to(tl.float32)[None, :]).to(kind)
        scores += tl.dot(scaled, tl.trans((codes >> 4).to(kind)), input_precision="ieee")
        scores += tl.sum(odd * tl.load(zero + 1).to(tl.float32)[None, :], 1)[:, None]
    return scores


def _weigh_group(
    out_even, out_odd, fade, weights, codes, scale, zero, BITS: tl.constexpr, HALF: tl.constexpr
):
    """Scale the output so far by `fade`, and add the values of a group by their weights."""
    kind: tl.constexpr = tl.float16 if HALF else tl.float32
    low = codes & 15 if BITS == 4 else codes
    scaled = (weights * scale.to(tl.float32)[None, :]).to(kind)
    base = tl.sum(weights * zero.to(tl.float32)[None, :], 1)[:, None]
    out_even = out_even * fade[:, None] + base
    out_even += tl.dot(scaled, low.to(kind), input_precision="ieee")
    if BITS == 4:
        out_odd = out_odd * fade[:, None] + base
        out_odd += tl.dot(scaled, (codes >> 4).to(kind), input_precision="ieee")
    return out_even, out_odd


def _join(
    q, k, k_head, v, v_head, part_out, part_maximum, part_total, out, parts, W, shrink,
    R: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Join one query's results of all parts, and attend to the window of its KV head."""
    row = tl.program_id(0).to(tl.int64)
    head, channels, every = row // R, tl.arange(0, D), tl.arange(0, PARTS)
    real = every < parts
    maxima = tl.load(part_maximum + row * parts + every, mask=real, other=-1e30)
    totals = tl.load(part_total + row * parts + every, mask=real, other=0.0)
    where = part_out + (row * parts + every)[:, None] * D + channels[None, :]
    each = tl.load(where, mask=real[:, None], other=0.0)  # (PARTS, D)
    maximum = tl.max(maxima, 0)
    shares = tl.exp(maxima - maximum)  # of each part, by the largest score of all
    total, joined = tl.sum(totals * shares, 0), tl.sum(each * shares[:, None], 0)

    query = tl.load(q + row * D + channels).to(tl.float32) * shrink
    for first in range(0, W, 16):
        tokens = first + tl.arange(0, 16)
        inside = tokens < W
        at = tokens[:, None] * D + channels[None, :]
        key = tl.load(k + head * k_head + at, mask=inside[:, None], other=0.0).to(tl.float32)
        value = tl.load(v + head * v_head + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(key * query[None, :], 1), -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 0))
        fade, weights = tl.exp(maximum - new_maximum), tl.exp(scores - new_maximum)
        maximum, total = new_maximum, total * fade + tl.sum(weights, 0)
        joined = joined * fade + tl.sum(value * weights[:, None], 0)
    tl.store(out + row * D + channels, joined / total)
