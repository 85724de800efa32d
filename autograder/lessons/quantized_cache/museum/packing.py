"""Known wrong answers to lesson 07: `pack_int4` and `unpack_int4`."""

from __future__ import annotations

import torch

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.fast.quantized import check_codes
from course.minigpt import quantized_cache as right

BUFFERS = {}
"""What a wrong answer keeps from call to call."""

bug = MUSEUM.section("unpack_int4", check="two_codes_share_a_byte")


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


bug = MUSEUM.section("pack_int4", check="two_codes_share_a_byte")


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


@bug("state", "codes in one memory for every call", kind="results")
def packs_into_a_buffer(codes):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    check_codes(codes, highest=15)
    low = codes[..., 0::2]
    return BUFFERS.setdefault(low.shape, low.clone()).copy_(low | (codes[..., 1::2] << 4))


bug = MUSEUM.section("unpack_int4", check="two_codes_share_a_byte")


@bug("state", "codes in one memory for every call", kind="results")
def unpacks_into_a_buffer(packed):
    """A buffer a shape spares allocations; the next call overwrites what the last one returned."""
    codes = right.unpack_int4(packed)
    return BUFFERS.setdefault(codes.shape, codes).copy_(codes)
