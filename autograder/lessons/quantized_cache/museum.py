"""Known wrong answers to lesson 07, and correct ones in other styles."""

from __future__ import annotations

import numpy as np
import torch

from autograder.lessons.exhibit import Bug, Variant
from course.bounds import check_between
from course.cache import CacheFull, check_block
from course.fast.quantized import (
    CacheBytes,
    GroupStore,
    Quantized,
    check_appended,
    check_codes,
    check_finite,
    check_quantizable,
    check_quantized_sizes,
)
from course.minigpt import quantized_cache as reference
from course.minigpt.quantized_cache import (
    QuantizedKVCache,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)

# --- quantize, dequantize ------------------------------------------------------------------------


def _asymmetric(x, bits, dim, low, high, *, nearest=torch.round, levels=None, guard=None):
    """The usual arithmetic, between the lowest and the highest number that somebody found."""
    scale = ((high.float() - low.float()) / (levels or 2**bits - 1)).to(x.dtype)
    scale = guard(scale) if guard else scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = nearest((x.float() - low.float()) / scale.float()).clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


def _range(x, dim):
    return torch.aminmax(x, dim=dim, keepdim=True)


def quantize_by_floor(x, bits, dim):
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), nearest=torch.floor)


def quantize_towards_zero(x, bits, dim):
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x / scale).to(torch.int8).clamp(-half, half)
    return Quantized((codes + half).to(torch.uint8), scale, -half * scale, bits)


def quantize_by_tensor(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    return _asymmetric(x, bits, dim, torch.full_like(low, x.min()), torch.full_like(high, x.max()))


def quantize_by_batch_row(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    others = tuple(range(1, x.dim()))
    low = x.amin(others, keepdim=True).expand_as(low).contiguous()
    return _asymmetric(x, bits, dim, low, x.amax(others, keepdim=True).expand_as(high).contiguous())


def quantize_along_the_last(x, bits, dim):
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, -1, *_range(x, -1))


def quantize_by_the_largest(x, bits, dim):
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.amax(dim, keepdim=True).abs() / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x.float() / scale.float()).round().clamp(-half, half) + half
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


def quantize_in_2_to_the_bits_steps(x, bits, dim):
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), levels=2**bits)


def quantize_with_half_of_the_codes(x, bits, dim):
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), levels=2 ** (bits - 1) - 1)


def quantize_that_wraps(x, bits, dim):
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1)
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() / scale.float()).round().long() + half) % 2**bits
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


def quantize_with_a_code_for_zero(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    point = (-low / scale).round().clamp(0, 2**bits - 1)
    codes = ((x / scale).round() + point).clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, -point * scale, bits)


def quantize_to_floats(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high - low) / (2**bits - 1)).clamp_min(torch.finfo(x.dtype).tiny)
    return Quantized((x - low) / scale, scale, low, bits)


def quantize_to_int64(x, bits, dim):
    q = reference.quantize(x, bits, dim)
    return q._replace(codes=q.codes.long())


def quantize_with_steps_in_float32(x, bits, dim):
    q = reference.quantize(x, bits, dim)
    return q._replace(scale=q.scale.float(), zero=q.zero.float())


def quantize_one_code_too_many(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / 2**bits).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() - low.float()) / scale.float()).round().clamp(0, 255)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


def quantize_without_smallest_step(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    codes = ((x.float() - low.float()) / scale.float()).nan_to_num(0).round().clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


def quantize_to_nan(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    unit = (x.float() - low.float()) / (high.float() - low.float())  # 0 … 1
    codes = (unit.nan_to_num(0) * (2**bits - 1)).round()
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    return Quantized(
        codes.to(torch.uint8), scale, low * (unit.amax(dim, keepdim=True)).to(x.dtype), bits
    )


def quantize_with_a_step_that_vanishes(x, bits, dim):
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = (high.float() - low.float()) / (2**bits - 1)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = ((x.float() - low.float()) / scale).round().clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale.to(x.dtype), low, bits)


def quantize_constants_to_zero(x, bits, dim):
    q = reference.quantize(x, bits, dim)
    low, high = _range(x, dim)
    return q._replace(zero=torch.where(low == high, torch.zeros_like(low), low))


def dequantize_without_zero(q):
    return q.scale * q.codes


def dequantize_that_subtracts_zero(q):
    return q.scale * q.codes - q.zero


def dequantize_by_shifted_codes(q):
    return q.scale * (q.codes + q.zero)


def dequantize_in_bytes(q):
    return q.zero + (q.scale * q.codes).round()


# --- pack_int4, unpack_int4 ----------------------------------------------------------------------


def pack_high_first(codes):
    check_codes(codes, highest=15)
    return (codes[..., 0::2] << 4) | codes[..., 1::2]


def unpack_high_first(packed):
    return torch.stack([packed >> 4, packed & 15], dim=-1).flatten(-2)


def unpack_signed(packed):
    codes = reference.unpack_int4(packed).to(torch.int8)
    return torch.where(codes > 7, codes - 16, codes)


def unpack_without_mask(packed):
    return torch.stack([packed, packed >> 4], dim=-1).flatten(-2)


def pack_halves(codes):
    check_codes(codes, highest=15)
    low, high = codes.chunk(2, dim=-1)
    return low | (high << 4)


def unpack_halves(packed):
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def pack_without_shift(codes):
    check_codes(codes, highest=15)
    return codes[..., 0::2] | codes[..., 1::2]


# --- QuantizedKVCache ----------------------------------------------------------------------------


def complete_groups(cache, n):
    """How many groups a right cache completes when it counts n tokens more."""
    return max(0, (cache.length + n - cache.window) // cache.group - cache.n_groups)


def _advance(
    cache, n, done=None, keys=lambda x, bits: quantize(x, bits, -2), values=None, keep=lambda x: x
):
    """The reference's `advance`, some of it exchanged: how many groups are complete, how keys and
    values are quantized, what becomes of the tokens that wait."""
    values = values or (lambda x, bits: quantize(x, bits, -1))
    if n == 0:
        return
    done = complete_groups(cache, n) if done is None else done
    layers = [torch.stack(cache.pending[layer]) for layer in range(cache.config.n_layers)]
    new = torch.stack(layers, dim=1)[..., :n, :]
    held = cache.length - cache.n_groups * cache.group
    rows = torch.cat([cache.recent[..., :held, :], new], dim=4)
    cache.length, cache.pending = cache.length + n, {}
    if done:
        complete = rows[..., : done * cache.group, :].unflatten(4, (done, cache.group))
        cache.keys.write(cache.n_groups, keys(complete[0], cache.bits))
        cache.values.write(cache.n_groups, values(complete[1], cache.bits))
        cache.n_groups += done
    rest = rows[..., done * cache.group :, :]
    cache.recent[..., : rest.shape[4], :] = keep(rest)


def _checked(cache, n):
    check_between("n", n, 0, cache.max_len - len(cache))
    check_appended(cache.pending, cache.config.n_layers, n)


class IgnoresTheWindow(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        _advance(self, n, done=(self.length + n) // self.group - self.n_groups)


class WindowOneShort(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        outside = max(0, self.length + n - max(0, self.window - 1))
        _advance(self, n, done=max(0, outside // self.group - self.n_groups))


class CutsOffTheWindow(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        held = self.length - self.n_groups * self.group
        old = range(held + n)[: -self.window]
        _advance(self, n, done=len(old) // self.group)


class RoundsWhatWaits(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keep=lambda rest: dequantize(quantize(rest, self.bits, -1)))


class RoundsWhatIsNew(QuantizedKVCache):
    def append(self, layer, k, v):
        super().append(layer, k, v)
        k, v = (dequantize(quantize(x, self.bits, -1)) for x in (k, v))
        pair = super().append(layer, k, v)
        return pair


class KeepsFloats(QuantizedKVCache):
    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, **how):
        super().__init__(config, batch, max_len, bits, group, window, **how)
        shape = (2, config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        self.recent = torch.zeros(shape, dtype=self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, done=0)


class KeysByToken(QuantizedKVCache):
    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -1, self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keys=lambda x, bits: quantize(x, bits, -1))


class ValuesByChannel(QuantizedKVCache):
    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.values = _store(self, -2, self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, values=lambda x, bits: quantize(x, bits, -2))


class SwapsTheAxes(QuantizedKVCache):
    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys, self.values = _store(self, -1, self.dtype), _store(self, -2, self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(
            self,
            n,
            keys=lambda x, bits: quantize(x, bits, -1),
            values=lambda x, bits: quantize(x, bits, -2),
        )


class KeysByTokenIntoTheStore(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keys=lambda x, bits: quantize(x, bits, -1))


class ValuesByChannelIntoTheStore(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        _advance(self, n, values=lambda x, bits: quantize(x, bits, -2))


def _store(cache, dim, dtype, bits=None):
    """A store as the cache has it, with another axis, dtype or number of bits."""
    room = max(0, cache.max_len - cache.window) // cache.group
    return GroupStore(
        cache.config,
        cache.batch,
        room,
        cache.group,
        bits or cache.bits,
        dim,
        dtype,
        "cpu",
        pack_int4,
        unpack_int4,
    )


class NewestScaleForAll(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)
        _advance(self, n)
        for store in (self.keys, self.values) if self.n_groups else ():
            newest = slice(self.n_groups - 1, self.n_groups)
            store.scale[:, :, :, : self.n_groups] = store.scale[:, :, :, newest]
            store.zero[:, :, :, : self.n_groups] = store.zero[:, :, :, newest]


class OneStepForAGroup(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            q = quantize(x.flatten(-2), bits, -1)
            return Quantized(q.codes.view_as(x), q.scale.unsqueeze(-1), q.zero.unsqueeze(-1), bits)

        _advance(self, n, keys=together, values=together)


class OneStepForTheBatch(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            rows = x.movedim(1, 3)  # (L, G, n, B, group, D)
            q = quantize(rows.flatten(3, 4), bits, -2)
            codes = q.codes.view_as(rows).movedim(3, 1)
            return Quantized(codes, q.scale.unsqueeze(1), q.zero.unsqueeze(1), bits)

        _advance(self, n, keys=together)


class OneStepForABlock(QuantizedKVCache):
    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            q = quantize(x.flatten(3, 4), bits, -2)
            codes = q.codes.view_as(x)
            return Quantized(codes, q.scale.unsqueeze(3), q.zero.unsqueeze(3), bits)

        _advance(self, n, keys=together)


class QuantizesOnlyThePrompt(QuantizedKVCache):
    """Single tokens are let into the window, which grows."""

    def advance(self, n):
        _checked(self, n)
        done = complete_groups(self, n) if n >= self.group else 0
        held = self.length - self.n_groups * self.group
        if held + n - done * self.group > self.recent.shape[4]:
            shape = (*self.recent.shape[:4], self.max_len, self.recent.shape[5])
            grown = torch.zeros(shape, dtype=self.dtype)
            grown[..., : self.recent.shape[4], :] = self.recent
            self.recent = grown
        _advance(self, n, done=done)


class GroupsWithinABlock(QuantizesOnlyThePrompt):
    """A group never crosses the end of a block: what is left over of a block waits, for ever."""

    def advance(self, n):
        _checked(self, n)
        held = self.length - self.n_groups * self.group
        done = max(0, n - self.window) // self.group
        if held + n - done * self.group > self.recent.shape[4]:
            shape = (*self.recent.shape[:4], self.max_len, self.recent.shape[5])
            grown = torch.zeros(shape, dtype=self.dtype)
            grown[..., : self.recent.shape[4], :] = self.recent
            self.recent = grown
        _advance(self, n, done=done)


class RoundsAgainAtEveryStep(QuantizedKVCache):
    """Groups end where the window begins, so all of them move along with every token."""

    def advance(self, n):
        _checked(self, n)
        layers = [torch.stack(self.pending[layer]) for layer in range(self.config.n_layers)]
        new = torch.stack(layers, dim=1)[..., :n, :]
        old = getattr(self, "rows", new[..., :0, :])[..., : self.length, :].to(self.dtype)
        rows = torch.cat([old, new], dim=4).clone()
        self.length, self.pending = self.length + n, {}
        end = max(0, self.length - self.window)
        start = end % self.group
        if end > start:
            groups = rows[..., start:end, :].unflatten(4, (-1, self.group))
            for kind, dim in ((0, -2), (1, -1)):
                back = dequantize(quantize(groups[kind], self.bits, dim))
                rows[kind, ..., start:end, :] = back.flatten(3, 4)
        self.rows = rows.double()  # more than anybody else keeps, so that its bytes are its own

    def append(self, layer, k, v):
        super().append(layer, k, v)
        old = getattr(self, "rows", torch.stack([k, v])[:, None, :, :, :0])[..., : self.length, :]
        old = old[:, layer].to(self.dtype) if self.length else torch.stack([k, v])[..., :0, :]
        both = torch.cat([old, torch.stack([k, v])], dim=3)
        return both[0], both[1]

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}


class KeepsWhatWasAbandoned(QuantizedKVCache):
    def append(self, layer, k, v):
        waiting = self.pending.get(layer)
        pair = super().append(layer, k, v)
        if waiting is not None:
            k, v = (torch.cat(both, dim=2) for both in zip(waiting, (k, v), strict=True))
            pair = super().append(layer, k, v)
        return pair


class CountsInAppend(QuantizedKVCache):
    def append(self, layer, k, v):
        counted = 0 if layer == 0 else k.shape[2]
        self.length -= counted
        pair = super().append(layer, k, v)
        self.length += k.shape[2]
        return pair

    def advance(self, n):
        self.length -= n
        super().advance(n)


class LetsInNaN(QuantizedKVCache):
    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        safe = super().append(layer, k.nan_to_num(), v.nan_to_num())
        self.pending[layer] = (k, v)
        return safe


class DropsWhatDoesNotFit(QuantizedKVCache):
    def append(self, layer, k, v):
        room = self.max_len - self.length
        if room == 0:
            check_finite("keys", k)
            raise CacheFull("full")
        return super().append(layer, k[:, :, :room], v[:, :, :room])


class LastPlaceUnused(QuantizedKVCache):
    def append(self, layer, k, v):
        if self.length + k.shape[2] >= self.max_len:
            raise CacheFull("full")
        return super().append(layer, k, v)


class TruncatesTheLengthOnly(QuantizedKVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        if n == 0:
            self.n_groups = 0


class ForgetsTheCutGroup(QuantizedKVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        self.n_groups = min(self.n_groups, n // self.group)


class BringsBackTheLastGroup(QuantizedKVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        kept = min(self.n_groups, n // self.group)
        rest = n - kept * self.group
        if kept < self.n_groups:
            for store, recent in zip((self.keys, self.values), self.recent, strict=True):
                for layer in range(self.config.n_layers):
                    old = dequantize(store.read(layer, self.n_groups))
                    recent[layer, :, :, :rest] = old[:, :, -1, :rest]
        self.length, self.n_groups, self.pending = n, kept, {}


class KeepsTheCutGroupWhole(QuantizedKVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        whole = min(self.n_groups, -(-n // self.group))
        self.length, self.pending, self.n_groups = max(n, whole * self.group), {}, whole


class ResetsTheLengthOnly(QuantizedKVCache):
    def reset(self):
        self.length = 0


class TruncatesByN(QuantizedKVCache):
    def truncate(self, n):
        check_between("n", n, 0, len(self))
        super().truncate(len(self) - n)


class UnpackedCodes(QuantizedKVCache):
    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -2, self.dtype, bits=8)
        self.values = _store(self, -1, self.dtype, bits=8)


class ScalesInFloat32(QuantizedKVCache):
    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -2, torch.float32)
        self.values = _store(self, -1, torch.float32)

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        return k.to(self.dtype), v.to(self.dtype)


class KeepsTheOriginals(QuantizedKVCache):
    def advance(self, n):
        kept = [k.clone() for k, _ in self.pending.values()]
        self.originals = [*getattr(self, "originals", []), *kept]
        super().advance(n)


class StaysPending(QuantizedKVCache):
    def advance(self, n):
        pending = dict(self.pending)
        super().advance(n)
        self.pending = pending


class CountsNoWindow(QuantizedKVCache):
    def nbytes(self):
        return self.keys.nbytes() + self.values.nbytes()


class CountsOnlyCodes(QuantizedKVCache):
    def nbytes(self):
        return self.keys.codes.nbytes + self.values.codes.nbytes


# --- quantized_cache_bytes -----------------------------------------------------------------------


def bytes_without_scales(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    sizes = (config, n_tokens, batch, bits, group, window, bytes_per_element)
    return reference.quantized_cache_bytes(*sizes)._replace(scales=0)


def bytes_without_window(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    sizes = (config, n_tokens, batch, bits, group, window, bytes_per_element)
    return reference.quantized_cache_bytes(*sizes)._replace(window=0)


def bytes_of_a_quantized_window(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return right._replace(window=right.window * bits // (8 * bytes_per_element))


def bytes_with_the_window_twice(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    every = 2 * config.n_layers * batch * config.n_kv_heads * n_tokens * config.head_dim
    return right._replace(codes=every * bits // 8)


def bytes_of_a_full_window_only(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    rows = 2 * config.n_layers * batch * config.n_kv_heads * config.head_dim * bytes_per_element
    return right._replace(window=rows * min(n_tokens, window))


def bytes_of_keys_only(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return CacheBytes(*(part // 2 for part in right))


def bytes_without_zeros(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return right._replace(scales=right.scales // 2)


def bytes_with_scales_by_token(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return right._replace(scales=right.scales * 2 * group // (config.head_dim + group))


def bytes_of_a_byte_a_code(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    return reference.quantized_cache_bytes(
        config, n_tokens, batch, 8, group, window, bytes_per_element
    )


def bytes_of_query_heads(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return CacheBytes(*(part * config.n_heads // config.n_kv_heads for part in right))


def bytes_of_one_row(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    return reference.quantized_cache_bytes(
        config, n_tokens, 1, bits, group, window, bytes_per_element
    )


def bytes_of_cut_groups(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    heads = 2 * config.n_layers * batch * config.n_kv_heads
    codes = max(0, n_tokens - window)
    right = reference.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return right._replace(codes=heads * codes * config.head_dim * bits // 8)


# --- the museum ----------------------------------------------------------------------------------


def _bug(check: str, name: str, story: str, family: str, mistake: str, **answer: object) -> Bug:
    return Bug(name, story, f"quantized_cache.{check}", family, mistake, answer)


_STEP, _CODES, _FLAT = "half_a_step_at_most", "codes_fit_their_bits", "flat_vectors_stay_finite"
_PACK, _GROUPS = "two_codes_share_a_byte", "groups_and_a_window"
_AXES, _SPLITS = "keys_by_channel_values_by_token", "every_split_leaves_the_same"
_REFUSED, _BACK = "a_refusal_changes_nothing", "quantized_cache_can_go_back"
_BYTES = "bytes_match_codes_scales_window"

BUGS = [
    _bug(
        _STEP,
        "quantize_by_floor",
        "floor for round: every error has the same sign and reaches a whole step.",
        "rounding",
        "codes that are cut off below instead of rounded to the nearest",
        quantize=quantize_by_floor,
    ),
    _bug(
        _STEP,
        "quantize_towards_zero",
        "A cast cuts off what stands behind the point, so all numbers shrink towards 0.",
        "rounding",
        "codes that are cut off towards zero instead of rounded",
        quantize=quantize_towards_zero,
    ),
    _bug(
        _STEP,
        "quantize_by_batch_row",
        "One step for everything in a batch row; small vectors become one level.",
        "rounding",
        "vectors of one batch row that share a step",
        quantize=quantize_by_batch_row,
    ),
    _bug(
        _STEP,
        "quantize_by_the_largest",
        "The step is made of max(x), not of max |x|: a vector of large negative numbers is cut off.",
        "rounding",
        "a step from the largest number, in which negative ones are forgotten",
        quantize=quantize_by_the_largest,
    ),
    _bug(
        _STEP,
        "quantize_in_2_to_the_bits_steps",
        "2^bits codes, so 2^bits steps? There is one fewer, and the largest number is a step off.",
        "off by one",
        "as many steps as there are codes",
        quantize=quantize_in_2_to_the_bits_steps,
    ),
    _bug(
        _STEP,
        "quantize_with_half_of_the_codes",
        "The step of a signed grid on codes that are not signed: half of them are never used.",
        "rounding",
        "a step twice as wide as the codes would allow",
        quantize=quantize_with_half_of_the_codes,
    ),
    _bug(
        _STEP,
        "quantize_that_wraps",
        "The largest number becomes 128, which an int8 does not hold: it comes back as the smallest.",
        "rounding",
        "codes that wrap around where the largest number stands",
        quantize=quantize_that_wraps,
    ),
    _bug(
        _STEP,
        "quantize_with_a_code_for_zero",
        "The zero is rounded to a code 0 … 2^bits - 1, which fails where all numbers are on one side.",
        "rounding",
        "a zero that must be one of the codes, for vectors without a zero in them",
        quantize=quantize_with_a_code_for_zero,
    ),
    _bug(
        _STEP,
        "dequantize_without_zero",
        "Codes times step, and where code 0 stands is forgotten.",
        "rounding",
        "numbers that come back as if code 0 stood for zero",
        dequantize=dequantize_without_zero,
    ),
    _bug(
        _STEP,
        "dequantize_that_subtracts_zero",
        "The zero is subtracted where it belongs added.",
        "rounding",
        "numbers that come back on the wrong side of their zero",
        dequantize=dequantize_that_subtracts_zero,
    ),
    _bug(
        _STEP,
        "dequantize_by_shifted_codes",
        "The zero is added to the code and then multiplied by the step as well.",
        "rounding",
        "numbers whose zero was multiplied by the step",
        dequantize=dequantize_by_shifted_codes,
    ),
    _bug(
        _STEP,
        "dequantize_in_bytes",
        "What comes back is rounded once more, to whole numbers.",
        "rounding",
        "numbers that are rounded a second time on their way back",
        dequantize=dequantize_in_bytes,
    ),
    _bug(
        _CODES,
        "quantize_by_tensor",
        "One step for the whole tensor: the codes of a vector depend on all the others.",
        "rounding",
        "all vectors of a tensor sharing one step",
        quantize=quantize_by_tensor,
    ),
    _bug(
        _CODES,
        "quantize_along_the_last",
        "dim is not used; the last one always is.",
        "rounding",
        "steps along the last dimension, whichever was asked for",
        quantize=quantize_along_the_last,
    ),
    _bug(
        _CODES,
        "quantize_to_floats",
        "Nothing is rounded: the codes are floats, the error is 0, and nothing is saved.",
        "form",
        "codes that were never made whole numbers",
        quantize=quantize_to_floats,
    ),
    _bug(
        _CODES,
        "quantize_to_int64",
        "The codes are right and take 8 bytes each.",
        "form",
        "codes of 8 bytes each",
        quantize=quantize_to_int64,
    ),
    _bug(
        _CODES,
        "quantize_with_steps_in_float32",
        "Steps and zeros are float32 whatever came in: twice the bytes that are billed.",
        "form",
        "steps of another dtype than the numbers",
        quantize=quantize_with_steps_in_float32,
    ),
    _bug(
        _CODES,
        "quantize_one_code_too_many",
        "2^bits steps and a clamp to bytes: 4-bit codes run up to 16, which does not fit a nibble.",
        "off by one",
        "codes that reach one beyond what their bits can hold",
        quantize=quantize_one_code_too_many,
    ),
    _bug(
        _FLAT,
        "quantize_without_smallest_step",
        "Equal numbers have no range, so their step is 0 and somebody divides by it later.",
        "rounding",
        "a step of zero where all numbers are equal",
        quantize=quantize_without_smallest_step,
    ),
    _bug(
        _FLAT,
        "quantize_to_nan",
        "0 / 0: a vector of equal numbers comes back as NaN.",
        "rounding",
        "a division of zero by zero where all numbers are equal",
        quantize=quantize_to_nan,
    ),
    _bug(
        _FLAT,
        "quantize_with_a_step_that_vanishes",
        "The step is guarded in float32 and stored in float16, where it becomes 0.",
        "rounding",
        "a step that is lost when it is stored",
        quantize=quantize_with_a_step_that_vanishes,
    ),
    _bug(
        _FLAT,
        "quantize_constants_to_zero",
        "A special case for equal numbers forgets which number it was.",
        "rounding",
        "equal numbers that all become zero",
        quantize=quantize_constants_to_zero,
    ),
    _bug(
        _PACK,
        "packs_high_first",
        "The first of two neighbours goes into the high four bits; it round-trips.",
        "writes",
        "bytes with the two codes the other way round",
        pack_int4=pack_high_first,
        unpack_int4=unpack_high_first,
    ),
    _bug(
        _PACK,
        "unpacks_high_first",
        "Packed low first and unpacked high first: every two neighbours change places.",
        "writes",
        "neighbours that change places on their way back",
        unpack_int4=unpack_high_first,
    ),
    _bug(
        _PACK,
        "unpacks_signed",
        "The high bit of a code is taken for a sign: 8 to 15 come back as -8 to -1.",
        "form",
        "codes whose highest bit was read as a sign",
        unpack_int4=unpack_signed,
    ),
    _bug(
        _PACK,
        "unpacks_without_mask",
        "The low code keeps the high one's bits above it.",
        "writes",
        "codes that come back with their neighbour's bits",
        unpack_int4=unpack_without_mask,
    ),
    _bug(
        _PACK,
        "packs_halves",
        "The left half goes low and the right half high: no neighbours, though it round-trips.",
        "writes",
        "bytes shared by codes that are no neighbours",
        pack_int4=pack_halves,
        unpack_int4=unpack_halves,
    ),
    _bug(
        _PACK,
        "unpacks_halves",
        "cat for stack: first all low codes, then all high ones.",
        "writes",
        "codes that come back in two halves, the low ones and the high ones",
        unpack_int4=unpack_halves,
    ),
    _bug(
        _PACK,
        "packs_without_shift",
        "Both codes fall into the same four bits.",
        "writes",
        "two codes in the same four bits",
        pack_int4=pack_without_shift,
    ),
    _bug(
        _GROUPS,
        "ignores_the_window",
        "A group is quantized as soon as it is complete, and the newest tokens are codes at once.",
        "writes",
        "groups that are rounded without waiting for the window",
        QuantizedKVCache=IgnoresTheWindow,
    ),
    _bug(
        _GROUPS,
        "window_one_short",
        "A group is quantized while one token of it still belongs to the window.",
        "writes",
        "a window that is one token too short",
        QuantizedKVCache=WindowOneShort,
    ),
    _bug(
        _GROUPS,
        "cuts_off_the_window",
        "rows[:-window] is nothing at all when the window is 0, so no group is ever complete.",
        "off by one",
        "a slice up to minus the window, which is empty for a window of none",
        QuantizedKVCache=CutsOffTheWindow,
    ),
    _bug(
        _GROUPS,
        "rounds_what_waits",
        "The window is rounded, too, and then its numbers are rounded a second time.",
        "writes",
        "a window that is rounded while it waits",
        QuantizedKVCache=RoundsWhatWaits,
    ),
    _bug(
        _GROUPS,
        "rounds_what_is_new",
        "New tokens come back rounded before anything was stored.",
        "writes",
        "new tokens that are rounded before they are complete groups",
        QuantizedKVCache=RoundsWhatIsNew,
    ),
    _bug(
        _GROUPS,
        "keeps_floats",
        "Everything stays in full precision: perfect words, and nothing saved.",
        "writes",
        "a cache that never makes codes of anything",
        QuantizedKVCache=KeepsFloats,
    ),
    _bug(
        _AXES,
        "keys_by_token",
        "Keys share a step across channels, so one large channel takes the small ones' levels.",
        "rounding",
        "keys of one token sharing a step",
        QuantizedKVCache=KeysByToken,
    ),
    _bug(
        _AXES,
        "keys_by_token_into_the_store",
        "Keys are quantized along the channels, and the store has room for a step a channel.",
        "rounding",
        "keys that are quantized along their channels, for which the store has no steps",
        QuantizedKVCache=KeysByTokenIntoTheStore,
    ),
    _bug(
        _AXES,
        "values_by_channel_into_the_store",
        "Values are quantized along the tokens, and the store has room for a step a token.",
        "rounding",
        "values that are quantized along the tokens, for which the store has no steps",
        QuantizedKVCache=ValuesByChannelIntoTheStore,
    ),
    _bug(
        _AXES,
        "values_by_channel",
        "Values share a step across tokens, so a loud token drowns the others.",
        "rounding",
        "values of one channel sharing a step",
        QuantizedKVCache=ValuesByChannel,
    ),
    _bug(
        _AXES,
        "swaps_the_axes",
        "Keys per token, values per channel: the other way round.",
        "rounding",
        "keys rounded as values should be, and values as keys",
        QuantizedKVCache=SwapsTheAxes,
    ),
    _bug(
        _AXES,
        "newest_scale_for_all",
        "One scale is kept, that of the newest group, and older codes are read by it.",
        "rounding",
        "codes of old groups read by the newest group's steps",
        QuantizedKVCache=NewestScaleForAll,
    ),
    _bug(
        _AXES,
        "one_step_for_a_group",
        "A group of a head has a single step for all its channels and tokens.",
        "rounding",
        "a single step for a whole group",
        QuantizedKVCache=OneStepForAGroup,
    ),
    _bug(
        _AXES,
        "one_step_for_the_batch",
        "The step of a channel is made over all batch rows: texts disturb one another.",
        "rounding",
        "texts of a batch that share their steps",
        QuantizedKVCache=OneStepForTheBatch,
    ),
    _bug(
        _AXES,
        "one_step_for_a_block",
        "All groups of a prompt get the step of the whole prompt.",
        "rounding",
        "all groups of one block sharing a step",
        QuantizedKVCache=OneStepForABlock,
    ),
    _bug(
        _SPLITS,
        "quantizes_only_the_prompt",
        "A block of one token completes no group; while writing, the cache grows in full precision.",
        "state",
        "a cache in which single tokens never complete a group",
        QuantizedKVCache=QuantizesOnlyThePrompt,
    ),
    _bug(
        _SPLITS,
        "groups_within_a_block",
        "Groups are counted within a block, so those that cross its end are never complete.",
        "state",
        "groups that are counted anew in every block",
        QuantizedKVCache=GroupsWithinABlock,
    ),
    _bug(
        _SPLITS,
        "rounds_again_at_every_step",
        "Groups end at the window and move with it: all is rounded again at every token.",
        "state",
        "tokens that are rounded again at every step",
        QuantizedKVCache=RoundsAgainAtEveryStep,
    ),
    _bug(
        _REFUSED,
        "keeps_what_was_abandoned",
        "Appended tokens pile up until advance, also those of a forward pass that was given up.",
        "state",
        "tokens of an append that was never advanced",
        QuantizedKVCache=KeepsWhatWasAbandoned,
    ),
    _bug(
        _REFUSED,
        "counts_in_append",
        "The length moves with the first layer's append, before the forward pass is through.",
        "state",
        "a length that moves before advance",
        QuantizedKVCache=CountsInAppend,
    ),
    _bug(
        _REFUSED,
        "lets_in_nan",
        "NaN is noticed when its group is complete, many tokens later.",
        "arguments",
        "NaN that is let in and noticed only when it is rounded",
        QuantizedKVCache=LetsInNaN,
    ),
    _bug(
        _REFUSED,
        "drops_what_does_not_fit",
        "Too long a block is cut silently.",
        "capacity",
        "a cache that drops what does not fit instead of refusing it",
        QuantizedKVCache=DropsWhatDoesNotFit,
    ),
    _bug(
        _REFUSED,
        "last_place_unused",
        ">= for >: the last place is never used.",
        "capacity",
        "a cache whose last place is never used",
        QuantizedKVCache=LastPlaceUnused,
    ),
    _bug(
        _BACK,
        "truncates_the_length_only",
        "The groups stay counted, so tokens that were forgotten come back.",
        "state",
        "a truncate that leaves the groups counted",
        QuantizedKVCache=TruncatesTheLengthOnly,
    ),
    _bug(
        _BACK,
        "forgets_the_cut_group",
        "The first tokens of a cut group are not brought back; what lies in the window is read.",
        "state",
        "a truncate after which a cut group is read from an old window",
        QuantizedKVCache=ForgetsTheCutGroup,
    ),
    _bug(
        _BACK,
        "brings_back_the_last_group",
        "It is the newest group that is brought back, and not the one that is cut.",
        "state",
        "a truncate that brings back the newest group instead of the cut one",
        QuantizedKVCache=BringsBackTheLastGroup,
    ),
    _bug(
        _BACK,
        "keeps_the_cut_group_whole",
        "A cut group stays whole: more tokens are held than were asked for.",
        "state",
        "a truncate that stops only at the end of a group",
        QuantizedKVCache=KeepsTheCutGroupWhole,
    ),
    _bug(
        _BACK,
        "resets_the_length_only",
        "reset() forgets the tokens and keeps counting their groups.",
        "state",
        "a reset that leaves the groups counted",
        QuantizedKVCache=ResetsTheLengthOnly,
    ),
    _bug(
        _BACK,
        "truncates_by_n",
        "n tokens are dropped instead of kept.",
        "capacity",
        "a truncate that drops as many tokens as it should keep",
        QuantizedKVCache=TruncatesByN,
    ),
    _bug(
        _BYTES,
        "unpacked_codes",
        "Each code has a byte of its own, whatever its bits.",
        "form",
        "a cache in which every code takes a whole byte",
        QuantizedKVCache=UnpackedCodes,
    ),
    _bug(
        _BYTES,
        "scales_in_float32",
        "Scales and zeros are float32 whatever was asked for.",
        "form",
        "scales that are float32 whatever was asked for",
        QuantizedKVCache=ScalesInFloat32,
    ),
    _bug(
        _BYTES,
        "keeps_the_originals",
        "The original keys are kept as well, just in case.",
        "form",
        "a cache that keeps original keys beside their codes",
        QuantizedKVCache=KeepsTheOriginals,
    ),
    _bug(
        _BYTES,
        "stays_pending",
        "What was appended stays pending when it is counted, so the last block is kept twice.",
        "state",
        "a last block that stays pending after it was counted",
        QuantizedKVCache=StaysPending,
    ),
    _bug(
        _BYTES,
        "counts_no_window",
        "nbytes() leaves the window out.",
        "formula",
        "a cache that counts its codes and scales and not its window",
        QuantizedKVCache=CountsNoWindow,
    ),
    _bug(
        _BYTES,
        "counts_only_codes",
        "nbytes() is what the codes take; scales and window come free.",
        "formula",
        "a cache that counts nothing but its codes",
        QuantizedKVCache=CountsOnlyCodes,
    ),
    _bug(
        _BYTES,
        "bytes_without_scales",
        "Four bits are half a byte, so the bill is a quarter: the scales are forgotten.",
        "formula",
        "bytes without any scales",
        quantized_cache_bytes=bytes_without_scales,
    ),
    _bug(
        _BYTES,
        "bytes_without_window",
        "The window is forgotten.",
        "formula",
        "bytes without the window",
        quantized_cache_bytes=bytes_without_window,
    ),
    _bug(
        _BYTES,
        "bytes_of_a_quantized_window",
        "The window is billed as if it were codes.",
        "formula",
        "bytes of a window that is billed as codes",
        quantized_cache_bytes=bytes_of_a_quantized_window,
    ),
    _bug(
        _BYTES,
        "bytes_with_the_window_twice",
        "Every token has codes in this bill, also those of the window.",
        "formula",
        "bytes in which the window's tokens are billed twice",
        quantized_cache_bytes=bytes_with_the_window_twice,
    ),
    _bug(
        _BYTES,
        "bytes_of_a_full_window_only",
        "The tokens of a group that is not complete yet have no room in this bill.",
        "formula",
        "bytes without room for a group that is not complete",
        quantized_cache_bytes=bytes_of_a_full_window_only,
    ),
    _bug(
        _BYTES,
        "bytes_of_keys_only",
        "Keys or values, but not both.",
        "formula",
        "bytes of keys or of values, but not of both",
        quantized_cache_bytes=bytes_of_keys_only,
    ),
    _bug(
        _BYTES,
        "bytes_without_zeros",
        "Each step is billed, and the zero that it needs is not.",
        "formula",
        "bytes of steps without their zeros",
        quantized_cache_bytes=bytes_without_zeros,
    ),
    _bug(
        _BYTES,
        "bytes_with_scales_by_token",
        "Keys are billed a step a token, as values are.",
        "formula",
        "bytes of keys with a step for each token",
        quantized_cache_bytes=bytes_with_scales_by_token,
    ),
    _bug(
        _BYTES,
        "bytes_of_a_byte_a_code",
        "bits is not used: a code is billed a byte.",
        "formula",
        "bytes in which every code has one, whatever its bits",
        quantized_cache_bytes=bytes_of_a_byte_a_code,
    ),
    _bug(
        _BYTES,
        "bytes_of_query_heads",
        "n_heads where n_kv_heads belongs.",
        "head order",
        "bytes of as many heads as there are queries",
        quantized_cache_bytes=bytes_of_query_heads,
    ),
    _bug(
        _BYTES,
        "bytes_of_one_row",
        "The batch is forgotten.",
        "formula",
        "bytes of a single batch row",
        quantized_cache_bytes=bytes_of_one_row,
    ),
    _bug(
        _BYTES,
        "bytes_of_cut_groups",
        "Tokens outside the window are billed as codes, also those whose group is not complete.",
        "formula",
        "bytes in which groups that are not complete are codes",
        quantized_cache_bytes=bytes_of_cut_groups,
    ),
]

# --- correct answers in other styles -------------------------------------------------------------


def quantize_symmetric(x, bits, dim):
    """Equally far to both sides of 0; one code is never used."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.float().abs().amax(dim, keepdim=True) / half).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x.float() / scale.float()).round().clamp(-half, half) + half
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


def quantize_around_the_middle(x, bits, dim):
    """Symmetric around the middle of the range: asymmetric, with half codes."""
    check_quantizable(x, bits, dim)
    low, high = (end.double() for end in torch.aminmax(x, dim=dim, keepdim=True))
    tiny = torch.finfo(x.dtype).tiny
    scale = ((high - low) / (2**bits - 1)).to(x.dtype).clamp_min(tiny)
    zero = torch.where(
        high - low < tiny, low, (low + high) / 2 - (2**bits - 1) * scale.double() / 2
    )
    zero = zero.to(x.dtype)
    codes = ((x.double() - zero.double()) / scale.double()).round().clamp(0, 2**bits - 1)
    return Quantized(codes.byte(), scale, zero, bits)


def quantize_in_numpy(x, bits, dim):
    check_quantizable(x, bits, dim)
    numbers = x.numpy().astype(np.float64)
    low, high = numbers.min(axis=dim, keepdims=True), numbers.max(axis=dim, keepdims=True)
    scale = torch.from_numpy((high - low) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = np.rint((numbers - low) / scale.double().numpy()).clip(0, 2**bits - 1)
    zero = torch.from_numpy(low).to(x.dtype)
    return Quantized(torch.from_numpy(codes.astype(np.uint8)), scale, zero, bits)


def quantize_by_nearest_level(x, bits, dim):
    """All levels of each vector, and the nearest of them."""
    check_quantizable(x, bits, dim)
    moved = x.movedim(dim, -1)
    low, high = moved.amin(-1, keepdim=True), moved.amax(-1, keepdim=True)
    scale = ((high.double() - low.double()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    levels = low.double() + scale.double() * torch.arange(2**bits)  # (…, 2^bits)
    codes = (moved.double().unsqueeze(-1) - levels.unsqueeze(-2)).abs().argmin(-1)
    back = (part.movedim(-1, dim) for part in (codes.to(torch.uint8), scale, low))
    return Quantized(*back, bits)


def dequantize_in_double(q):
    return (q.zero.double() + q.codes.double() * q.scale.double()).to(q.scale.dtype)


def dequantize_by_addcmul(q):
    return torch.addcmul(q.zero, q.scale, q.codes.to(q.scale.dtype))


def dequantize_in_numpy(q):
    numbers = q.codes.numpy().astype(q.scale.numpy().dtype) * q.scale.numpy() + q.zero.numpy()
    return torch.from_numpy(numbers)


def dequantize_by_lerp(q):
    most = 2**q.bits - 1
    high = q.zero.double() + q.scale.double() * most
    return torch.lerp(q.zero.double(), high, q.codes.double() / most).to(q.scale.dtype)


def pack_by_arithmetic(codes):
    check_codes(codes, highest=15)
    return codes[..., ::2] + 16 * codes[..., 1::2]


def pack_in_pairs(codes):
    check_codes(codes, highest=15)
    pairs = codes.unflatten(-1, (-1, 2)).int()
    return (pairs * torch.tensor([1, 16])).sum(-1).to(torch.uint8)


def pack_in_numpy(codes):
    check_codes(codes, highest=15)
    numbers = codes.numpy()
    return torch.from_numpy(numbers[..., ::2] | np.left_shift(numbers[..., 1::2], 4))


def pack_one_by_one(codes):
    check_codes(codes, highest=15)
    flat = codes.reshape(-1).tolist()
    packed = [low + (high << 4) for low, high in zip(flat[::2], flat[1::2], strict=True)]
    return torch.tensor(packed, dtype=torch.uint8).view(*codes.shape[:-1], -1)


def unpack_into_places(packed):
    codes = packed.new_empty(*packed.shape[:-1], 2 * packed.shape[-1])
    codes[..., ::2], codes[..., 1::2] = packed % 16, packed // 16
    return codes


def unpack_by_shifts(packed):
    shifts = torch.tensor([0, 4], dtype=torch.uint8)
    return ((packed.unsqueeze(-1) >> shifts) & 0xF).reshape(*packed.shape[:-1], -1)


def unpack_in_numpy(packed):
    numbers = packed.numpy()
    both = np.stack([numbers % 16, numbers // 16], axis=-1)
    return torch.from_numpy(both.reshape(*numbers.shape[:-1], -1))


def unpack_by_a_table(packed):
    table = torch.tensor([[byte % 16, byte // 16] for byte in range(256)], dtype=torch.uint8)
    return table[packed.long()].flatten(-2)


class GroupByGroup(QuantizedKVCache):
    """One group after the other, as they become complete."""

    def advance(self, n):
        _checked(self, n)
        rows = [
            torch.cat([self._waiting(layer), torch.stack(self.pending[layer])[..., :n, :]], dim=3)
            for layer in range(self.config.n_layers)
        ]
        self.pending, self.length = {}, self.length + n
        while rows and self.length - self.n_groups * self.group >= self.window + self.group:
            for store, dim, kind in ((self.keys, -2, 0), (self.values, -1, 1)):
                group = torch.stack([row[kind, :, :, None, : self.group] for row in rows])
                store.write(self.n_groups, quantize(group, self.bits, dim))
            rows = [row[..., self.group :, :] for row in rows]
            self.n_groups += 1
        for layer, row in enumerate(rows):
            self.recent[:, layer, ..., : row.shape[3], :] = row

    def _waiting(self, layer):
        return self.recent[:, layer, ..., : self.length - self.n_groups * self.group, :]


class TokenByToken(GroupByGroup):
    """Whatever the block, one token is counted after the other."""

    def advance(self, n):
        _checked(self, n)
        blocks = dict(self.pending)
        for token in range(n):
            self.pending = {
                layer: tuple(part[:, :, token : token + 1] for part in pair)
                for layer, pair in blocks.items()
            }
            super().advance(1)


class ListsOfGroups(QuantizedKVCache):
    """No stores: a list of groups for each layer, and a window that is moved on."""

    def __init__(
        self, config, batch, max_len, bits=8, group=64, window=32, dtype=torch.float32, device="cpu"
    ):
        check_quantized_sizes(config, batch, max_len, bits, group, window)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        self.bits, self.group, self.window = bits, group, window
        rows = (2, batch, config.n_kv_heads, min(max_len, window + group - 1), config.head_dim)
        self.waiting = [torch.zeros(rows, dtype=dtype) for _ in range(config.n_layers)]
        self.done = [[] for _ in range(config.n_layers)]
        self.count, self.pending = 0, {}

    def __len__(self):
        return self.count

    def _keep(self, x, dim):
        q = quantize(x.contiguous(), self.bits, dim)
        codes = q.codes
        if self.bits == 2:
            codes = codes[..., ::2] | codes[..., 1::2] << 2
        return (
            (codes.clone() if self.bits == 8 else pack_int4(codes)),
            q.scale.clone(),
            q.zero.clone(),
        )

    def _back(self, kept):
        codes, scale, zero = kept
        codes = codes if self.bits == 8 else unpack_int4(codes)
        if self.bits == 2:
            codes = torch.stack([codes & 3, codes >> 2], dim=-1).flatten(-2)
        return dequantize(Quantized(codes, scale, zero, self.bits))

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if self.count + k.shape[2] > self.max_len:
            raise CacheFull("full")
        self.pending[layer] = torch.stack([k, v])
        held = self.count - len(self.done[layer]) * self.group
        parts = [torch.stack([self._back(a), self._back(b)]) for a, b in self.done[layer]]
        both = torch.cat([*parts, self.waiting[layer][:, :, :, :held], self.pending[layer]], dim=3)
        return both[0], both[1]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - self.count)
        check_appended(self.pending, self.config.n_layers, n)
        for layer in range(self.config.n_layers if n else 0):
            held = self.count - len(self.done[layer]) * self.group
            rows = torch.cat([self.waiting[layer][:, :, :, :held], self.pending[layer]], dim=3)
            while rows.shape[3] >= self.window + self.group:
                group, rows = rows[:, :, :, : self.group], rows[:, :, :, self.group :]
                self.done[layer].append((self._keep(group[0], -2), self._keep(group[1], -1)))
            self.waiting[layer][:, :, :, : rows.shape[3]] = rows
        self.count, self.pending = self.count + n, {}

    def truncate(self, n):
        check_between("n", n, 0, self.count)
        whole, rest = divmod(n, self.group)
        for layer, done in enumerate(self.done):
            if whole < len(done):
                cut = torch.stack([self._back(part) for part in done[whole]])
                self.waiting[layer][:, :, :, :rest] = cut[:, :, :, :rest]
                del done[whole:]
        self.count, self.pending = n, {}

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        kept = [part for done in self.done for pair in done for one in pair for part in one]
        return sum(part.nbytes for part in [*kept, *self.waiting])


class SymmetricCache(QuantizedKVCache):
    """With steps to both sides of 0."""

    def advance(self, n):
        _checked(self, n)
        _advance(
            self,
            n,
            keys=lambda x, bits: quantize_symmetric(x, bits, -2),
            values=lambda x, bits: quantize_symmetric(x, bits, -1),
        )


class TwoWindows(QuantizedKVCache):
    """Keys and values apart in every step, by loops over layers."""

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        check_finite("keys", k)
        check_finite("values", v)
        if self.max_len - self.length < k.shape[2]:
            raise CacheFull("full")
        self.pending[layer] = (k.clone(), v.clone())
        first = self.n_groups * self.group
        total = self.length + k.shape[2]
        shape = (self.batch, self.config.n_kv_heads, total, self.config.head_dim)
        out = []
        for kind, (store, new) in enumerate(((self.keys, k), (self.values, v))):
            whole = torch.empty(shape, dtype=self.dtype)
            for number in range(self.n_groups):
                q = store.read(layer, number + 1)
                one = Quantized(*(part[:, :, number] for part in q[:3]), self.bits)
                whole[:, :, number * self.group : (number + 1) * self.group] = dequantize(one)
            whole[:, :, first : self.length] = self.recent[kind, layer, :, :, : self.length - first]
            whole[:, :, self.length :] = new
            out.append(whole)
        return tuple(out)


def bytes_of_keys_and_values(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    groups, D = max(n_tokens - window, 0) // group, config.head_dim
    rows = config.n_layers * batch * config.n_kv_heads
    key_steps, value_steps = 2 * groups * D, 2 * groups * group
    return CacheBytes(
        2 * (rows * groups * group * D * bits // 8),
        rows * (key_steps + value_steps) * bytes_per_element,
        2 * rows * min(n_tokens, window + group - 1) * D * bytes_per_element,
    )


def bytes_by_simulation(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    waiting = most = groups = 0
    for _ in range(n_tokens):
        waiting += 1
        if waiting == window + group:
            waiting, groups = waiting - group, groups + 1
        most = max(most, waiting)
    most = max(most, min(n_tokens, window + group - 1))
    heads, D = 2 * config.n_layers * batch * config.n_kv_heads, config.head_dim
    numbers = groups * (D + group)
    return CacheBytes(
        heads * groups * group * D * bits // 8,
        heads * numbers * bytes_per_element,
        heads * most * D * bytes_per_element,
    )


def bytes_of_a_real_cache(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    dtype = {2: torch.float16, 4: torch.float32}[bytes_per_element]
    sizes = (bits, group, window, dtype, "meta")
    cache = reference.QuantizedKVCache(config, batch, n_tokens, *sizes)
    stores = (cache.keys, cache.values)
    codes = sum(store.codes.nbytes for store in stores)
    return CacheBytes(codes, sum(s.nbytes() for s in stores) - codes, cache.recent.nbytes)


def bytes_by_bits(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    D, coded = config.head_dim, max(0, n_tokens - window) // group * group
    vectors = 2 * config.n_layers * batch * config.n_kv_heads
    codes = vectors * coded * D * bits
    scales = vectors * coded * (8 * bytes_per_element) * (D + group) // group
    rows = n_tokens if n_tokens < window + group else window + group - 1
    return CacheBytes(codes // 8, scales // 8, vectors * rows * D * bytes_per_element)


VARIANTS = [
    Variant("symmetric", {"quantize": quantize_symmetric}),
    Variant("around_the_middle", {"quantize": quantize_around_the_middle}),
    Variant("numpy", {"quantize": quantize_in_numpy, "dequantize": dequantize_in_numpy}),
    Variant("nearest_level", {"quantize": quantize_by_nearest_level}),
    Variant("double", {"dequantize": dequantize_in_double, "pack_int4": pack_by_arithmetic}),
    Variant("addcmul", {"dequantize": dequantize_by_addcmul, "unpack_int4": unpack_into_places}),
    Variant("lerp", {"dequantize": dequantize_by_lerp}),
    Variant("pairs", {"pack_int4": pack_in_pairs, "unpack_int4": unpack_by_shifts}),
    Variant("numpy_bytes", {"pack_int4": pack_in_numpy, "unpack_int4": unpack_in_numpy}),
    Variant("one_by_one", {"pack_int4": pack_one_by_one, "unpack_int4": unpack_by_a_table}),
    Variant("symmetric_cache", {"QuantizedKVCache": SymmetricCache}),
    Variant("group_by_group", {"QuantizedKVCache": GroupByGroup}),
    Variant("token_by_token", {"QuantizedKVCache": TokenByToken}),
    Variant(
        "lists_of_groups",
        {"QuantizedKVCache": ListsOfGroups, "quantized_cache_bytes": bytes_by_bits},
    ),
    Variant(
        "two_windows",
        {"QuantizedKVCache": TwoWindows, "quantized_cache_bytes": bytes_of_keys_and_values},
    ),
    Variant("bytes_simulated", {"quantized_cache_bytes": bytes_by_simulation}),
    Variant("bytes_of_a_real_cache", {"quantized_cache_bytes": bytes_of_a_real_cache}),
]
