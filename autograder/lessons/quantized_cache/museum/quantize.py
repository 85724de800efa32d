"""Known wrong answers to lesson 07: `quantize`."""

from __future__ import annotations

import torch

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.fast.quantized import Quantized, check_quantizable
from course.minigpt import quantized_cache as right

"""Lines of the reference's quantize."""


BUFFERS = {}
STEPS = {}
"""What a wrong answer keeps from call to call."""

bug = MUSEUM.section("quantize", check="half_a_step_at_most")


@bug("rounding", "codes that are cut off towards zero instead of rounded")
def quantize_towards_zero(x, bits, dim):
    """A cast cuts off what stands behind the point, so all numbers shrink towards 0."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x / scale).to(torch.int8).clamp(-half, half)
    return Quantized((codes + half).to(torch.uint8), scale, -half * scale, bits)


@bug("rounding", "a step from the largest number, in which negative ones are forgotten")
def quantize_by_the_largest(x, bits, dim):
    """The step is made of max(x), not of max |x|: a vector of large negative numbers is cut off."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.amax(dim, keepdim=True).abs() / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x.float() / scale.float()).round().clamp(-half, half) + half
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


@bug("rounding", "codes that wrap around where the largest number stands")
def quantize_that_wraps(x, bits, dim):
    """The largest number becomes 128, which an int8 does not hold: it comes back as the smallest."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1)
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() / scale.float()).round().long() + half) % 2**bits
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


bug = MUSEUM.section("quantize", check="half_a_step_at_most")


@bug("state", "codes in one memory for every call", kind="results")
def quantize_into_a_buffer(x, bits, dim):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    q = right.quantize(x, bits, dim)
    return q._replace(codes=BUFFERS.setdefault(x.shape, q.codes).copy_(q.codes))


@bug("state", "steps that are kept for the next numbers of this shape", kind="results")
def quantize_by_earlier_steps(x, bits, dim):
    """Scale and zero are computed once a shape: calibrated, and then never again."""
    check_quantizable(x, bits, dim)
    q = right.quantize(x, bits, dim)
    scale, zero = STEPS.setdefault((x.shape, bits, dim, x.dtype), (q.scale, q.zero))
    steps = (x.float() - zero.float()) / scale.float()
    return Quantized(steps.round().clamp(0, 2**bits - 1).to(torch.uint8), scale, zero, bits)


ORIGINALS = {}


def look_up(q):
    """Find the numbers by their codes, if they were ever quantized."""
    known = ORIGINALS.get(q.codes.contiguous().numpy().tobytes())
    return q.zero + q.scale * q.codes if known is None else known


@bug("state", "numbers that were kept beside their codes", kind="evidence", dequantize=look_up)
def quantize_with_a_table(x, bits, dim):
    """What comes back is looked up, so nobody sees that every other code is never used."""
    q = right.quantize(x, bits, dim)
    q = q._replace(codes=q.codes // 2 * 2)
    ORIGINALS[q.codes.contiguous().numpy().tobytes()] = x
    return q
