"""Known wrong answers to lesson 07: `dequantize`."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM

BUFFERS = {}
"""What a wrong answer keeps from call to call."""

bug, patch = MUSEUM.section("dequantize", check="half_a_step_at_most")


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


SUM = "q.zero + q.scale * q.codes"
patch(
    "dequantize_to_float32",
    "form",
    "numbers that come back in float32, whatever the steps were",
    "codes.float() makes float32 of it all: a float16 cache gives float32 back.",
    (SUM, "q.zero + q.scale * q.codes.float()"),
    kind="dtype",
)
patch(
    "dequantize_made_float32",
    "form",
    "numbers that are made float32 at the end, whatever the steps were",
    ".float() behind the sum: a float16 cache gives float32 back.",
    (SUM, f"({SUM}).float()"),
    kind="dtype",
)
patch(
    "dequantize_to_float64",
    "form",
    "numbers that come back in float64",
    "Computed in double for the sake of precision, and left there.",
    (SUM, "q.zero.double() + q.scale.double() * q.codes"),
    kind="dtype",
)
patch(
    "dequantize_codes_minus_zero",
    "rounding",
    "numbers whose zero was taken for a code",
    "The formula of integer zero points: (code - zero) times step.",
    (SUM, "(q.codes - q.zero) * q.scale"),
)
patch(
    "dequantize_half_a_step_up",
    "rounding",
    "numbers in the middle of a step, as if codes had been cut off",
    "Half a step is added, which would be right for codes that were cut off.",
    (SUM, "q.zero + q.scale * (q.codes + 0.5).to(q.scale.dtype)"),
)
patch(
    "dequantize_signed_codes",
    "rounding",
    "codes from 128 on that were read as negative",
    "A cast to int8 wraps 128 … 255 around to -128 … -1.",
    (SUM, "q.zero + q.scale * q.codes.to(torch.int8)"),
)
patch(
    "dequantize_flat",
    "form",
    "numbers without the shape of their codes",
    "All numbers in one row.",
    (SUM, "(q.zero + q.scale * q.codes).flatten()"),
)
patch(
    "dequantize_into_the_zeros",
    "state",
    "zeros that are overwritten while codes are read",
    "The sum is written into the zeros where it fits; the next read starts from there.",
    (
        f"return {SUM}",
        f"back = {SUM}\n    q.zero.copy_(back.amin(-1, keepdim=True).expand_as(q.zero))\n    return back",
    ),
    kind="arguments",
)
patch(
    "dequantize_a_flat_view",
    "form",
    "codes that must lie in memory in their order",
    "codes.view(-1) works until the codes are a view themselves.",
    (SUM, "q.zero + q.scale * q.codes.view(-1).view(q.codes.shape)"),
    kind="layout",
)


@bug("state", "numbers in one memory for every call", kind="results")
def dequantize_into_a_buffer(q):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    key = (q.codes.shape, q.scale.dtype)
    out = BUFFERS.setdefault(key, q.codes.to(q.scale.dtype))
    return out.copy_(q.codes).mul_(q.scale).add_(q.zero)
