"""Known wrong answers to lesson 07: `quantize`."""

from __future__ import annotations

import torch

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.fast.quantized import Quantized, check_quantizable
from course.minigpt import quantized_cache as right

RANGE = "low, high = torch.aminmax(x, dim=dim, keepdim=True)"
STEP = "(high.float() - low.float()) / (2**bits - 1)"
SMALLEST = (
    "scale = scale.clamp_min(torch.finfo(x.dtype).tiny)  # of equal numbers, or lost in float16"
)
DIVIDE = "steps = (x.float() - low.float()) / scale.float()  # by the scale that is stored"
CODES = "steps.round().clamp(0, 2**bits - 1).to(torch.uint8)"
RESULT = "return Quantized(codes, scale, low, bits)"
"""Lines of the reference's quantize."""


BUFFERS = {}
STEPS = {}
"""What a wrong answer keeps from call to call."""

bug, patch = MUSEUM.section("quantize", check="half_a_step_at_most")

patch(
    "quantize_by_floor",
    "rounding",
    "codes that are cut off below instead of rounded to the nearest",
    "floor for round: every error has the same sign and reaches a whole step.",
    ("steps.round()", "steps.floor()"),
)


@bug("rounding", "codes that are cut off towards zero instead of rounded")
def quantize_towards_zero(x, bits, dim):
    """A cast cuts off what stands behind the point, so all numbers shrink towards 0."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x / scale).to(torch.int8).clamp(-half, half)
    return Quantized((codes + half).to(torch.uint8), scale, -half * scale, bits)


patch(
    "quantize_by_batch_row",
    "rounding",
    "vectors of one batch row that share a step",
    "One step for everything in a batch row; small vectors become one level.",
    (
        RANGE,
        f"""{RANGE}
    others = tuple(range(1, x.dim()))
    low = x.amin(others, keepdim=True).expand_as(low).contiguous()
    high = x.amax(others, keepdim=True).expand_as(high).contiguous()""",
    ),
)


@bug("rounding", "a step from the largest number, in which negative ones are forgotten")
def quantize_by_the_largest(x, bits, dim):
    """The step is made of max(x), not of max |x|: a vector of large negative numbers is cut off."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.amax(dim, keepdim=True).abs() / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x.float() / scale.float()).round().clamp(-half, half) + half
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


patch(
    "quantize_in_2_to_the_bits_steps",
    "off by one",
    "as many steps as there are codes",
    "2^bits codes, so 2^bits steps? There is one fewer, and the largest number is a step off.",
    ("/ (2**bits - 1)", "/ 2**bits"),
)
patch(
    "quantize_with_half_of_the_codes",
    "rounding",
    "a step twice as wide as the codes would allow",
    "The step of a signed grid on codes that are not signed: half of them are never used.",
    ("/ (2**bits - 1)", "/ (2 ** (bits - 1) - 1)"),
)


@bug("rounding", "codes that wrap around where the largest number stands")
def quantize_that_wraps(x, bits, dim):
    """The largest number becomes 128, which an int8 does not hold: it comes back as the smallest."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1)
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() / scale.float()).round().long() + half) % 2**bits
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


patch(
    "quantize_with_a_code_for_zero",
    "rounding",
    "a zero that must be one of the codes, for vectors without a zero in them",
    "The zero is rounded to a code 0 … 2^bits - 1, which fails where all numbers are on one side.",
    (
        DIVIDE,
        """point = (-low / scale).round().clamp(0, 2**bits - 1)
    steps = (x / scale).round() + point""",
    ),
    ("scale, low, bits", "scale, -point * scale, bits"),
)
patch(
    "quantize_up_to_256",
    "rounding",
    "codes up to 2^bits, one more than a byte holds",
    "A step stored in bfloat16 may be too small, so the largest number gets code 256: a byte's 0.",
    ("clamp(0, 2**bits - 1)", "clamp(0, 2**bits)"),
)


bug, patch = MUSEUM.section("quantize", check="codes_fit_their_bits")

patch(
    "quantize_by_tensor",
    "rounding",
    "all vectors of a tensor sharing one step",
    "One step for the whole tensor: the codes of a vector depend on all the others.",
    (
        RANGE,
        f"{RANGE}\n    low, high = torch.full_like(low, x.min()), torch.full_like(high, x.max())",
    ),
)
patch(
    "quantize_along_the_last",
    "rounding",
    "steps along the last dimension, whichever was asked for",
    "dim is not used; the last one always is.",
    ("aminmax(x, dim=dim", "aminmax(x, dim=-1"),
)
patch(
    "quantize_to_floats",
    "form",
    "codes that were never made whole numbers",
    "Nothing is rounded: the codes are floats, the error is 0, and nothing is saved.",
    (CODES, "steps"),
)
patch(
    "quantize_to_int64",
    "form",
    "codes of 8 bytes each",
    "The codes are right and take 8 bytes each.",
    ("to(torch.uint8)", "to(torch.int64)"),
)
patch(
    "quantize_with_steps_in_float32",
    "form",
    "steps of another dtype than the numbers",
    "Steps and zeros are float32 whatever came in: twice the bytes that are billed.",
    (RESULT, "return Quantized(codes, scale.float(), low.float(), bits)"),
)
patch(
    "quantize_one_code_too_many",
    "off by one",
    "codes that reach one beyond what their bits can hold",
    "2^bits steps and a clamp to bytes: 4-bit codes run up to 16, which does not fit a nibble.",
    ("/ (2**bits - 1)", "/ 2**bits"),
    ("clamp(0, 2**bits - 1)", "clamp(0, 255)"),
)


bug, patch = MUSEUM.section("quantize", check="flat_vectors_stay_finite")

patch(
    "quantize_without_smallest_step",
    "rounding",
    "a step of zero where all numbers are equal",
    "Equal numbers have no range, so their step is 0 and somebody divides by it later.",
    (SMALLEST, ""),
    ("steps.round()", "steps.nan_to_num(0).round()"),
)
patch(
    "quantize_to_nan",
    "rounding",
    "a division of zero by zero where all numbers are equal",
    "0 / 0: a vector of equal numbers comes back as NaN.",
    (
        DIVIDE,
        """unit = (x.float() - low.float()) / (high.float() - low.float())  # 0 … 1
    low = low * unit.amax(dim, keepdim=True).to(x.dtype)
    steps = unit.nan_to_num(0) * (2**bits - 1)""",
    ),
)
patch(
    "quantize_with_a_step_that_vanishes",
    "rounding",
    "a step that is lost when it is stored",
    "The step is guarded in float32 and stored in float16, where it becomes 0.",
    (f"({STEP}).to(x.dtype)", STEP),
    (SMALLEST, "scale = torch.where(scale == 0, torch.ones_like(scale), scale)"),
    (RESULT, "return Quantized(codes, scale.to(x.dtype), low, bits)"),
)
patch(
    "quantize_constants_to_zero",
    "rounding",
    "equal numbers that all become zero",
    "A special case for equal numbers forgets which number it was.",
    (RESULT, f"low = torch.where(low == high, torch.zeros_like(low), low)\n    {RESULT}"),
)
patch(
    "quantize_by_a_step_of_1_where_it_is_0",
    "rounding",
    "a guard against a step of 0 that lets nearly 0 pass",
    "Only a step that is 0 is replaced; one below the smallest normal number has few digits.",
    (SMALLEST, "scale = torch.where(scale == 0, torch.ones_like(scale), scale)"),
    kind="dtype",
)
patch(
    "quantize_without_a_single_number",
    "rounding",
    "vectors of one number that come back as 0",
    "One number along dim needs no code, and then its zero is forgotten.",
    (RESULT, f"low = low if x.shape[dim] > 1 else torch.zeros_like(low)\n    {RESULT}"),
    kind="sizes",
)
patch(
    "quantize_not_without_vectors",
    "rounding",
    "a look at the lowest number of all x, which may hold none",
    "x.min() is read to see whether all numbers are the same.",
    (RANGE, f"same = bool(x.min() == x.max())\n    {RANGE}"),
    kind="sizes",
)

bug, patch = MUSEUM.section("quantize", check="half_a_step_at_most")
IN_X_DTYPE = (
    (f"({STEP}).to(x.dtype)", "(high - low) / (2**bits - 1)"),
    (DIVIDE, "steps = (x - low) / scale"),
)
patch(
    "quantize_in_the_dtype_of_x",
    "rounding",
    "a division in float16, which has three digits",
    "Everything is computed in x's own dtype; in float16 it is off by 0.66 of a step, or infinite.",
    *IN_X_DTYPE,
    ("steps.round()", "steps.nan_to_num(0).round()"),
    kind="dtype",
)
patch(
    "quantize_by_the_step_before_it_is_stored",
    "rounding",
    "a division by another step than the one that is stored",
    "Divided by the exact step, stored is what float16 makes of it.",
    (DIVIDE, f"steps = (x.float() - low.float()) / ({STEP}).clamp_min(1e-37)"),
    kind="dtype",
)
patch(
    "quantize_a_range_in_float16",
    "rounding",
    "a range that is larger than the largest number of float16",
    "high - low in float16 is infinite from 65,504 on.",
    (STEP, "(high - low) / (2**bits - 1)"),
    kind="dtype",
)
patch(
    "quantize_by_ceil",
    "rounding",
    "codes that are always rounded up",
    "ceil for round: every error has the same sign and reaches a whole step.",
    ("steps.round()", "steps.ceil()"),
)
patch(
    "quantize_at_random",
    "rounding",
    "codes that are rounded up or down by chance",
    "Stochastic rounding is right on average and a whole step off at worst.",
    (
        "steps.round()",
        "(steps + torch.rand(x.shape, generator=torch.Generator().manual_seed(0))).floor()",
    ),
)
patch(
    "quantize_from_the_middle",
    "rounding",
    "a zero in the middle of the range, under codes that count from its low end",
    "The middle is stored as zero, and codes count from the lowest number.",
    (RESULT, "return Quantized(codes, scale, (low + high) / 2, bits)"),
)
patch(
    "quantize_from_the_high_end",
    "rounding",
    "steps below 0, which count down from the highest number",
    "Code 0 is the highest number and steps are negative.",
    (f"({STEP}).to(x.dtype)", "((low.float() - high.float()) / (2**bits - 1)).to(x.dtype)"),
    (SMALLEST, "scale = scale.clamp_max(-torch.finfo(x.dtype).tiny)"),
    (DIVIDE, DIVIDE.replace("low", "high")),
    (RESULT, RESULT.replace("low", "high")),
)
patch(
    "quantize_around_0_in_steps_of_one_side",
    "rounding",
    "a step of one side of 0 for codes that reach to both",
    "max |x| over all codes: half as wide as it must be, so the upper half is cut off.",
    (RANGE, "high = x.abs().amax(dim, keepdim=True)\n    low = torch.zeros_like(high)"),
    ("scale = scale.clamp_min", "low = -high\n    scale = scale.clamp_min"),
)
patch(
    "quantize_with_as_many_codes_on_either_side",
    "rounding",
    "a grid around 0 whose highest code does not exist",
    "2^bits / 2 steps to each side need 2^bits + 1 codes: the largest numbers are a step off.",
    (RANGE, "high = x.abs().amax(dim, keepdim=True)\n    low = -high"),
    ("/ (2**bits - 1)", "/ 2**bits"),
)
patch(
    "quantize_by_a_whole_zero_point",
    "rounding",
    "a zero that was rounded to a whole number of steps",
    "Zero point and codes are rounded apart: half a step and half a step.",
    (
        DIVIDE,
        "point = (-low.float() / scale.float()).round()\n"
        "    steps = (x.float() / scale.float()).round() + point",
    ),
    (RESULT, "return Quantized(codes, scale, (-point * scale).to(x.dtype), bits)"),
)
patch(
    "quantize_without_the_outliers",
    "rounding",
    "a step of the middle 98 %, by which the others are cut off",
    "Quantiles instead of lowest and highest: outliers are clamped.",
    (
        RANGE,
        "low, high = (x.float().quantile(at, dim=dim, keepdim=True).to(x.dtype) for at in (0.01, 0.99))",
    ),
)
patch(
    "quantize_with_a_little_more",
    "rounding",
    "steps to which something is added",
    "+ 1e-5 keeps the step above 0, and swallows numbers that are small themselves.",
    (SMALLEST, "scale = scale + 1e-5"),
    kind="sizes",
)
patch(
    "quantize_with_steps_of_1e_8_at_least",
    "rounding",
    "a smallest step that is large for small numbers and 0 in float16",
    "clamp_min(1e-8): too much for small numbers, nothing in float16.",
    (SMALLEST, "scale = scale.clamp_min(1e-8)"),
    ("steps.round()", "steps.nan_to_num(0).round()"),
    kind="sizes",
)
patch(
    "quantize_by_the_first_256",
    "rounding",
    "a step of the first 256 numbers of a vector",
    "The range is taken of the first 256 along dim, the largest group there was.",
    (RANGE, RANGE.replace("(x,", "(x.narrow(dim, 0, min(256, x.shape[dim])),")),
    kind="sizes",
)
patch(
    "quantize_by_row_0",
    "rounding",
    "vectors of every row that share the steps of row 0",
    "The range is taken of x[0] alone.",
    (
        RANGE,
        f"""{RANGE}
    if dim % x.dim():
        low, high = (end[:1].expand_as(end) for end in (low, high))""",
    ),
    kind="batch",
)
patch(
    "quantize_in_place",
    "state",
    "numbers that lose their zero where they lie",
    "x -= low writes into the caller's numbers.",
    (DIVIDE, "steps = x.sub_(low).float() / scale.float()"),
    kind="arguments",
)
patch(
    "quantize_float32_in_place",
    "state",
    "numbers that are turned into steps where they lie, if they are float32",
    "x.float() is x itself where x is float32, and sub_ writes into it.",
    (DIVIDE, "steps = x.float().sub_(low.float()).div_(scale.float())"),
    kind="arguments",
)
patch(
    "quantize_a_flat_view",
    "form",
    "numbers that must lie in memory in their order",
    "x.view(-1) works until x is a view itself.",
    (RANGE, f"x = x.view(-1).view(x.shape)\n    {RANGE}"),
    kind="layout",
)


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


patch(
    "quantize_without_keepdim",
    "form",
    "scales that lack the dimension that was quantized",
    "Without keepdim the scales do not broadcast to the codes.",
    (
        RESULT,
        "return Quantized(codes, scale.squeeze(dim), low.squeeze(dim), bits)",
    ),
)
patch(
    "quantize_turned_around",
    "form",
    "codes whose dimensions changed places",
    "dim is moved to the end for the arithmetic, and nothing is moved back.",
    (RANGE, f"x, dim = x.transpose(dim, -1), -1\n    {RANGE}"),
)


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


bug, patch = MUSEUM.section("quantize", check="codes_fit_their_bits")
patch(
    "quantize_to_int8",
    "form",
    "codes of int8, in which those from 128 on are negative",
    "int8 holds -128 … 127, and codes of 8 bits reach 255.",
    ("to(torch.uint8)", "to(torch.int8)"),
    kind="dtype",
)
patch(
    "quantize_to_whole_floats",
    "form",
    "codes that are whole numbers in the dtype of x",
    "Rounded, and never made bytes.",
    (CODES, "steps.round().clamp(0, 2**bits - 1).to(x.dtype)"),
    kind="dtype",
)
patch(
    "quantize_to_8_bits_always",
    "rounding",
    "codes of 8 bits, however many were asked for",
    "255 levels whatever bits says.",
    ("/ (2**bits - 1)", "/ 255"),
    ("clamp(0, 2**bits - 1)", "clamp(0, 255)"),
)
patch(
    "quantize_2_bits_as_4",
    "rounding",
    "codes of 4 bits where 2 were asked for",
    "At least 4 bits, for 2 are never enough.",
    (RANGE, f"bits = max(bits, 4)\n    {RANGE}"),
)
patch(
    "quantize_that_says_8_bits",
    "form",
    "codes that are said to have 8 bits, whatever they have",
    "The last field of Quantized is copied from an example.",
    (RESULT, "return Quantized(codes, scale, low, 8)"),
)
patch(
    "quantize_with_steps_in_float16",
    "form",
    "steps in float16, whatever the numbers are",
    "Half the bytes for steps, and none of the precision.",
    (RESULT, "return Quantized(codes, scale.half(), low.half(), bits)"),
    kind="dtype",
)
patch(
    "quantize_to_float32_first",
    "form",
    "numbers that were made float32 before they had a step",
    "x.float() first, so steps and zeros are float32 whatever came in.",
    (RANGE, f"x = x.float()\n    {RANGE}"),
    kind="dtype",
)
