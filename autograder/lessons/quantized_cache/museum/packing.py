"""Known wrong answers to lesson 07: `pack_int4` and `unpack_int4`."""

from __future__ import annotations

import torch

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.fast.quantized import check_codes
from course.minigpt import quantized_cache as right

BUFFERS = {}
"""What a wrong answer keeps from call to call."""

bug, patch = MUSEUM.section("unpack_int4", check="two_codes_share_a_byte")


@bug("writes", "neighbours that change places on their way back")
def unpacks_high_first(packed):
    """Packed low first and unpacked high first: every two neighbours change places."""
    return torch.stack([packed >> 4, packed & 15], dim=-1).flatten(-2)


@bug("form", "codes whose highest bit was read as a sign")
def unpacks_signed(packed):
    """The high bit of a code is taken for a sign: 8 to 15 come back as -8 to -1."""
    codes = right.unpack_int4(packed).to(torch.int8)
    return torch.where(codes > 7, codes - 16, codes)


@bug("writes", "codes that come back with their neighbour's bits")
def unpacks_without_mask(packed):
    """The low code keeps the high one's bits above it."""
    return torch.stack([packed, packed >> 4], dim=-1).flatten(-2)


@bug("writes", "codes that come back in two halves, the low ones and the high ones")
def unpacks_halves(packed):
    """cat for stack: first all low codes, then all high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


bug, patch = MUSEUM.section("pack_int4", check="two_codes_share_a_byte")


@bug("writes", "bytes with the two codes the other way round", unpack_int4=unpacks_high_first)
def packs_high_first(codes):
    """The first of two neighbours goes into the high four bits; it round-trips."""
    check_codes(codes, highest=15)
    return (codes[..., 0::2] << 4) | codes[..., 1::2]


@bug("writes", "bytes shared by codes that are no neighbours", unpack_int4=unpacks_halves)
def packs_halves(codes):
    """The left half goes low and the right half high: no neighbours, though it round-trips."""
    check_codes(codes, highest=15)
    low, high = codes.chunk(2, dim=-1)
    return low | (high << 4)


patch(
    "packs_high_first_alone",
    "writes",
    "bytes with the two codes the other way round, which are unpacked rightly",
    "The first of two neighbours goes into the high four bits, and comes back as the second.",
    ("codes[..., 0::2] | (codes[..., 1::2] << 4)", "(codes[..., 0::2] << 4) | codes[..., 1::2]"),
)
patch(
    "packs_halves_alone",
    "writes",
    "bytes of a left and a right half, which are unpacked as neighbours",
    "chunk(2) for every other code: the two halves of a row share its bytes.",
    (
        "codes[..., 0::2] | (codes[..., 1::2] << 4)",
        "codes[..., : codes.shape[-1] // 2] | (codes[..., codes.shape[-1] // 2 :] << 4)",
    ),
)
patch(
    "packs_without_shift",
    "writes",
    "two codes in the same four bits",
    "Both codes fall into the same four bits.",
    ("(codes[..., 1::2] << 4)", "codes[..., 1::2]"),
)
BYTES = "codes[..., 0::2] | (codes[..., 1::2] << 4)"
patch(
    "packs_by_three_bits",
    "writes",
    "a second code that moved up by too few bits",
    "Shifted by 3, so the two codes overlap in a bit.",
    ("<< 4", "<< 3"),
)
patch(
    "packs_into_int32",
    "form",
    "bytes that take four bytes each",
    "Sums of ints are ints: right numbers, and eight times the memory.",
    (BYTES, "codes[..., 0::2].int() + 16 * codes[..., 1::2].int()"),
    kind="dtype",
)
patch(
    "packs_everything_in_a_row",
    "form",
    "bytes without the shape of their codes",
    "The codes are flattened, and stay so.",
    (f"return {BYTES}", "codes = codes.flatten()\n    return codes[0::2] | (codes[1::2] << 4)"),
)
patch(
    "packs_in_place",
    "state",
    "codes that are shifted where they lie",
    "<<= writes into the caller's codes.",
    (
        f"return {BYTES}",
        "high = codes[..., 1::2]\n    high <<= 4\n    return codes[..., 0::2] | high",
    ),
    kind="arguments",
)
patch(
    "packs_a_flat_view",
    "form",
    "codes that must lie in memory in their order",
    "codes.view(-1, 2) works until the codes are a view themselves.",
    (
        f"return {BYTES}",
        "pairs = codes.view(-1, 2)\n    packed = pairs[:, 0] | (pairs[:, 1] << 4)\n"
        "    return packed.view(*codes.shape[:-1], -1)",
    ),
    kind="layout",
)


@bug("state", "codes in one memory for every call", kind="results")
def packs_into_a_buffer(codes):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    check_codes(codes, highest=15)
    low = codes[..., 0::2]
    return BUFFERS.setdefault(low.shape, low.clone()).copy_(low | (codes[..., 1::2] << 4))


patch(
    "packs_up_to_512",
    "form",
    "a row of codes that is cut where a buffer ends",
    "Room for 512 codes, which no head has ever been wider than.",
    (BYTES, "(codes[..., 0::2] | (codes[..., 1::2] << 4))[..., :256]"),
    kind="sizes",
)

bug, patch = MUSEUM.section("unpack_int4", check="two_codes_share_a_byte")
CODES = "torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)"
patch(
    "unpacks_three_bits",
    "writes",
    "low codes of which the highest bit is lost",
    "& 7 keeps three of four bits.",
    ("& 15", "& 7"),
)
patch(
    "unpacks_to_int64",
    "form",
    "codes of 8 bytes each",
    "Right codes, eight times as wide.",
    (CODES, "torch.stack([packed.long() & 15, packed.long() >> 4], dim=-1).flatten(-2)"),
    kind="dtype",
)
patch(
    "unpacks_into_pairs",
    "form",
    "codes that stay in pairs",
    "(…, n / 2, 2), and never flattened.",
    (".flatten(-2)", ""),
)
patch(
    "unpacks_in_place",
    "state",
    "bytes that are shifted where they lie",
    ">>= writes into the stored bytes, which are then codes of something else.",
    (
        f"return {CODES}",
        f"low = packed & 15\n    packed >>= 4\n    return {CODES}".replace(
            "packed & 15, packed >> 4", "low, packed"
        ),
    ),
    kind="arguments",
)


@bug("state", "codes in one memory for every call", kind="results")
def unpacks_into_a_buffer(packed):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    codes = right.unpack_int4(packed)
    return BUFFERS.setdefault(codes.shape, codes).copy_(codes)
