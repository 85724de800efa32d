"""Known wrong answers to lesson 07: `dequantize`."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM

BUFFERS = {}
"""What a wrong answer keeps from call to call."""

bug = MUSEUM.section("dequantize", check="half_a_step_at_most")


@bug("rounding", "numbers that come back as if code 0 stood for zero")
def dequantize_without_zero(q):
    """Codes times step, and where code 0 stands is forgotten."""
    return q.scale * q.codes


@bug("rounding", "numbers that come back on the wrong side of their zero")
def dequantize_that_subtracts_zero(q):
    """The zero is subtracted where it belongs added."""
    return q.scale * q.codes - q.zero


@bug("rounding", "numbers whose zero was multiplied by the step")
def dequantize_by_shifted_codes(q):
    """The zero is added to the code and then multiplied by the step as well."""
    return q.scale * (q.codes + q.zero)


@bug("rounding", "numbers that are rounded a second time on their way back")
def dequantize_in_bytes(q):
    """What comes back is rounded once more, to whole numbers."""
    return q.zero + (q.scale * q.codes).round()


@bug("state", "numbers in one memory for every call", kind="results")
def dequantize_into_a_buffer(q):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    key = (q.codes.shape, q.scale.dtype)
    out = BUFFERS.setdefault(key, q.codes.to(q.scale.dtype))
    return out.copy_(q.codes).mul_(q.scale).add_(q.zero)
