"""The cheapest wrong answers to lesson 07 that once got points, see `autograder cheapest`."""

from __future__ import annotations

import torch

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.fast.quantized import Quantized, check_finite
from course.minigpt.kv_cache import KVCache
from course.minigpt.quantized_cache import dequantize, quantize

bug = MUSEUM.section("quantize", check="codes_fit_their_bits")


@bug("rounding", "codes that say the sign and no more", kind="cheapest")
def quantize_the_sign(x, bits, dim):
    """Above 0 or not: a code of one bit fits into any number of them."""
    largest = x.amax(dim, keepdim=True)
    return Quantized((x > 0).to(torch.uint8), largest, largest, bits)


bug = MUSEUM.section("quantize", check="flat_vectors_stay_finite")


@bug("rounding", "a step of 1 for all numbers", kind="cheapest")
def quantize_to_whole_numbers(x, bits, dim):
    """Steps are never 0, and numbers that are nearly the same have code 0."""
    low = x.amin(dim, keepdim=True)
    codes = (x - low).round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Quantized(codes, torch.ones_like(low), low, bits)


bug = MUSEUM.section("QuantizedKVCache", check="groups_and_a_window")


@bug("writes", "floats that are halved as they are read", kind="cheapest")
class HalvesOfFloats(KVCache):
    """Lesson 03's cache: complete groups come back as other numbers, so they look rounded."""

    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window = group, window

    def append(self, layer, k, v):
        n = max(0, len(self) - self.window) // self.group * self.group
        rows = [rows.clone() for rows in super().append(layer, k, v)]
        for held in rows:
            held[:, :, :n] /= 2
        return rows


bug = MUSEUM.section("QuantizedKVCache", check="keys_by_channel_values_by_token")


@bug("state", "floats that are rounded as they are read", kind="cheapest")
class RoundsAsItReads(KVCache):
    """Lesson 03's cache: groups are quantized and dequantized at each read, and no code is kept."""

    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.bits, self.group, self.window = bits, group, window

    def append(self, layer, k, v):
        check_finite("keys", k)
        check_finite("values", v)
        n, rows = max(0, len(self) - self.window) // self.group, super().append(layer, k, v)
        rows = [held.clone() for held in rows]
        for held, dim in zip(rows, (-2, -1), strict=True) if n else ():
            groups = held[:, :, : n * self.group].unflatten(2, (n, self.group))
            groups.copy_(dequantize(quantize(groups, self.bits, dim)))
        return rows


bug = MUSEUM.section("QuantizedKVCache", check="every_split_leaves_the_same")


@bug("writes", "floats that are read as whole numbers", kind="cheapest")
class WholeNumbers(KVCache):
    """Lesson 03's cache: rounded in the same way whatever the split, and not by steps."""

    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.group, self.window = group, window

    def append(self, layer, k, v):
        n = max(0, len(self) - self.window) // self.group * self.group
        rows = [rows.clone() for rows in super().append(layer, k, v)]
        for held in rows:
            held[:, :, :n] = held[:, :, :n].round()
        return rows
