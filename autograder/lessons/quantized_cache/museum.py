"""Known wrong answers to lesson 07."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
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
)
from course.minigpt import quantized_cache as right
from course.minigpt.quantized_cache import (
    QuantizedKVCache,
    dequantize,
    pack_int4,
    quantize,
    unpack_int4,
)

MUSEUM = Museum("quantized_cache")


def _asymmetric(x, bits, dim, low, high, *, nearest=torch.round, levels=None, guard=None):
    """The usual arithmetic, between the lowest and the highest number that somebody found."""
    scale = ((high.float() - low.float()) / (levels or 2**bits - 1)).to(x.dtype)
    scale = guard(scale) if guard else scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = nearest((x.float() - low.float()) / scale.float()).clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


def _range(x, dim):
    return torch.aminmax(x, dim=dim, keepdim=True)


bug, patch = MUSEUM.section("quantize", check="half_a_step_at_most")


@bug("rounding", "codes that are cut off below instead of rounded to the nearest")
def quantize_by_floor(x, bits, dim):
    """floor for round: every error has the same sign and reaches a whole step."""
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), nearest=torch.floor)


@bug("rounding", "codes that are cut off towards zero instead of rounded")
def quantize_towards_zero(x, bits, dim):
    """A cast cuts off what stands behind the point, so all numbers shrink towards 0."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x / scale).to(torch.int8).clamp(-half, half)
    return Quantized((codes + half).to(torch.uint8), scale, -half * scale, bits)


@bug("rounding", "vectors of one batch row that share a step")
def quantize_by_batch_row(x, bits, dim):
    """One step for everything in a batch row; small vectors become one level."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    others = tuple(range(1, x.dim()))
    low = x.amin(others, keepdim=True).expand_as(low).contiguous()
    return _asymmetric(x, bits, dim, low, x.amax(others, keepdim=True).expand_as(high).contiguous())


@bug("rounding", "a step from the largest number, in which negative ones are forgotten")
def quantize_by_the_largest(x, bits, dim):
    """The step is made of max(x), not of max |x|: a vector of large negative numbers is cut
    off."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1) - 1
    scale = (x.amax(dim, keepdim=True).abs() / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = (x.float() / scale.float()).round().clamp(-half, half) + half
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


@bug("off by one", "as many steps as there are codes")
def quantize_in_2_to_the_bits_steps(x, bits, dim):
    """2^bits codes, so 2^bits steps? There is one fewer, and the largest number is a step
    off."""
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), levels=2**bits)


@bug("rounding", "a step twice as wide as the codes would allow")
def quantize_with_half_of_the_codes(x, bits, dim):
    """The step of a signed grid on codes that are not signed: half of them are never used."""
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, dim, *_range(x, dim), levels=2 ** (bits - 1) - 1)


@bug("rounding", "codes that wrap around where the largest number stands")
def quantize_that_wraps(x, bits, dim):
    """The largest number becomes 128, which an int8 does not hold: it comes back as the
    smallest."""
    check_quantizable(x, bits, dim)
    half = 2 ** (bits - 1)
    scale = (x.abs().amax(dim, keepdim=True) / half).clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() / scale.float()).round().long() + half) % 2**bits
    return Quantized(codes.to(torch.uint8), scale, -half * scale, bits)


@bug("rounding", "a zero that must be one of the codes, for vectors without a zero in them")
def quantize_with_a_code_for_zero(x, bits, dim):
    """The zero is rounded to a code 0 … 2^bits - 1, which fails where all numbers are on one
    side."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    point = (-low / scale).round().clamp(0, 2**bits - 1)
    codes = ((x / scale).round() + point).clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, -point * scale, bits)


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


bug, patch = MUSEUM.section("quantize", check="codes_fit_their_bits")


@bug("rounding", "all vectors of a tensor sharing one step")
def quantize_by_tensor(x, bits, dim):
    """One step for the whole tensor: the codes of a vector depend on all the others."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    return _asymmetric(x, bits, dim, torch.full_like(low, x.min()), torch.full_like(high, x.max()))


@bug("rounding", "steps along the last dimension, whichever was asked for")
def quantize_along_the_last(x, bits, dim):
    """dim is not used; the last one always is."""
    check_quantizable(x, bits, dim)
    return _asymmetric(x, bits, -1, *_range(x, -1))


@bug("form", "codes that were never made whole numbers")
def quantize_to_floats(x, bits, dim):
    """Nothing is rounded: the codes are floats, the error is 0, and nothing is saved."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high - low) / (2**bits - 1)).clamp_min(torch.finfo(x.dtype).tiny)
    return Quantized((x - low) / scale, scale, low, bits)


@bug("form", "codes of 8 bytes each")
def quantize_to_int64(x, bits, dim):
    """The codes are right and take 8 bytes each."""
    q = right.quantize(x, bits, dim)
    return q._replace(codes=q.codes.long())


@bug("form", "steps of another dtype than the numbers")
def quantize_with_steps_in_float32(x, bits, dim):
    """Steps and zeros are float32 whatever came in: twice the bytes that are billed."""
    q = right.quantize(x, bits, dim)
    return q._replace(scale=q.scale.float(), zero=q.zero.float())


@bug("off by one", "codes that reach one beyond what their bits can hold")
def quantize_one_code_too_many(x, bits, dim):
    """2^bits steps and a clamp to bytes: 4-bit codes run up to 16, which does not fit a
    nibble."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / 2**bits).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    codes = ((x.float() - low.float()) / scale.float()).round().clamp(0, 255)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


bug, patch = MUSEUM.section("quantize", check="flat_vectors_stay_finite")


@bug("rounding", "a step of zero where all numbers are equal")
def quantize_without_smallest_step(x, bits, dim):
    """Equal numbers have no range, so their step is 0 and somebody divides by it later."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    codes = ((x.float() - low.float()) / scale.float()).nan_to_num(0).round().clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale, low, bits)


@bug("rounding", "a division of zero by zero where all numbers are equal")
def quantize_to_nan(x, bits, dim):
    """0 / 0: a vector of equal numbers comes back as NaN."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    unit = (x.float() - low.float()) / (high.float() - low.float())  # 0 … 1
    codes = (unit.nan_to_num(0) * (2**bits - 1)).round()
    scale = ((high.float() - low.float()) / (2**bits - 1)).to(x.dtype)
    scale = scale.clamp_min(torch.finfo(x.dtype).tiny)
    return Quantized(
        codes.to(torch.uint8), scale, low * (unit.amax(dim, keepdim=True)).to(x.dtype), bits
    )


@bug("rounding", "a step that is lost when it is stored")
def quantize_with_a_step_that_vanishes(x, bits, dim):
    """The step is guarded in float32 and stored in float16, where it becomes 0."""
    check_quantizable(x, bits, dim)
    low, high = _range(x, dim)
    scale = (high.float() - low.float()) / (2**bits - 1)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = ((x.float() - low.float()) / scale).round().clamp(0, 2**bits - 1)
    return Quantized(codes.to(torch.uint8), scale.to(x.dtype), low, bits)


@bug("rounding", "equal numbers that all become zero")
def quantize_constants_to_zero(x, bits, dim):
    """A special case for equal numbers forgets which number it was."""
    q = right.quantize(x, bits, dim)
    low, high = _range(x, dim)
    return q._replace(zero=torch.where(low == high, torch.zeros_like(low), low))


def unpacks_high_first(packed):
    return torch.stack([packed >> 4, packed & 15], dim=-1).flatten(-2)


bug, patch = MUSEUM.section("pack_int4", check="two_codes_share_a_byte")


@bug("writes", "bytes with the two codes the other way round", unpack_int4=unpacks_high_first)
def packs_high_first(codes):
    """The first of two neighbours goes into the high four bits; it round-trips."""
    check_codes(codes, highest=15)
    return (codes[..., 0::2] << 4) | codes[..., 1::2]


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


def unpacks_halves(packed):
    return torch.cat([packed & 15, packed >> 4], dim=-1)


bug, patch = MUSEUM.section("pack_int4", check="two_codes_share_a_byte")


@bug("writes", "bytes shared by codes that are no neighbours", unpack_int4=unpacks_halves)
def packs_halves(codes):
    """The left half goes low and the right half high: no neighbours, though it round-trips."""
    check_codes(codes, highest=15)
    low, high = codes.chunk(2, dim=-1)
    return low | (high << 4)


bug, patch = MUSEUM.section("unpack_int4", check="two_codes_share_a_byte")


@bug("writes", "codes that come back in two halves, the low ones and the high ones")
def unpacks_halves(packed):
    """cat for stack: first all low codes, then all high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


bug, patch = MUSEUM.section("pack_int4", check="two_codes_share_a_byte")


@bug("writes", "two codes in the same four bits")
def packs_without_shift(codes):
    """Both codes fall into the same four bits."""
    check_codes(codes, highest=15)
    return codes[..., 0::2] | codes[..., 1::2]


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


bug, patch = MUSEUM.section("QuantizedKVCache", check="groups_and_a_window")


@bug("writes", "groups that are rounded without waiting for the window")
class IgnoresTheWindow(QuantizedKVCache):
    """A group is quantized as soon as it is complete, and the newest tokens are codes at
    once."""

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, done=(self.length + n) // self.group - self.n_groups)


@bug("writes", "a window that is one token too short")
class WindowOneShort(QuantizedKVCache):
    """A group is quantized while one token of it still belongs to the window."""

    def advance(self, n):
        _checked(self, n)
        outside = max(0, self.length + n - max(0, self.window - 1))
        _advance(self, n, done=max(0, outside // self.group - self.n_groups))


@bug("off by one", "a slice up to minus the window, which is empty for a window of none")
class CutsOffTheWindow(QuantizedKVCache):
    """rows[:-window] is nothing at all when the window is 0, so no group is ever complete."""

    def advance(self, n):
        _checked(self, n)
        held = self.length - self.n_groups * self.group
        old = range(held + n)[: -self.window]
        _advance(self, n, done=len(old) // self.group)


@bug("writes", "a window that is rounded while it waits")
class RoundsWhatWaits(QuantizedKVCache):
    """The window is rounded, too, and then its numbers are rounded a second time."""

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keep=lambda rest: dequantize(quantize(rest, self.bits, -1)))


@bug("writes", "new tokens that are rounded before they are complete groups")
class RoundsWhatIsNew(QuantizedKVCache):
    """New tokens come back rounded before anything was stored."""

    def append(self, layer, k, v):
        super().append(layer, k, v)
        k, v = (dequantize(quantize(x, self.bits, -1)) for x in (k, v))
        pair = super().append(layer, k, v)
        return pair


@bug("writes", "a cache that never makes codes of anything")
class KeepsFloats(QuantizedKVCache):
    """Everything stays in full precision: perfect words, and nothing saved."""

    def __init__(self, config, batch, max_len, bits=8, group=64, window=32, **how):
        super().__init__(config, batch, max_len, bits, group, window, **how)
        shape = (2, config.n_layers, batch, config.n_kv_heads, max_len, config.head_dim)
        self.recent = torch.zeros(shape, dtype=self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, done=0)


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


bug, patch = MUSEUM.section("QuantizedKVCache", check="keys_by_channel_values_by_token")


@bug("rounding", "keys of one token sharing a step")
class KeysByToken(QuantizedKVCache):
    """Keys share a step across channels, so one large channel takes the small ones' levels."""

    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -1, self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keys=lambda x, bits: quantize(x, bits, -1))


@bug("rounding", "keys that are quantized along their channels, for which the store has no steps")
class KeysByTokenIntoTheStore(QuantizedKVCache):
    """Keys are quantized along the channels, and the store has room for a step a channel."""

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, keys=lambda x, bits: quantize(x, bits, -1))


@bug("rounding", "values that are quantized along the tokens, for which the store has no steps")
class ValuesByChannelIntoTheStore(QuantizedKVCache):
    """Values are quantized along the tokens, and the store has room for a step a token."""

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, values=lambda x, bits: quantize(x, bits, -2))


@bug("rounding", "values of one channel sharing a step")
class ValuesByChannel(QuantizedKVCache):
    """Values share a step across tokens, so a loud token drowns the others."""

    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.values = _store(self, -2, self.dtype)

    def advance(self, n):
        _checked(self, n)
        _advance(self, n, values=lambda x, bits: quantize(x, bits, -2))


@bug("rounding", "keys rounded as values should be, and values as keys")
class SwapsTheAxes(QuantizedKVCache):
    """Keys per token, values per channel: the other way round."""

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


@bug("rounding", "codes of old groups read by the newest group's steps")
class NewestScaleForAll(QuantizedKVCache):
    """One scale is kept, that of the newest group, and older codes are read by it."""

    def advance(self, n):
        _checked(self, n)
        _advance(self, n)
        for store in (self.keys, self.values) if self.n_groups else ():
            newest = slice(self.n_groups - 1, self.n_groups)
            store.scale[:, :, :, : self.n_groups] = store.scale[:, :, :, newest]
            store.zero[:, :, :, : self.n_groups] = store.zero[:, :, :, newest]


@bug("rounding", "a single step for a whole group")
class OneStepForAGroup(QuantizedKVCache):
    """A group of a head has a single step for all its channels and tokens."""

    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            q = quantize(x.flatten(-2), bits, -1)
            return Quantized(q.codes.view_as(x), q.scale.unsqueeze(-1), q.zero.unsqueeze(-1), bits)

        _advance(self, n, keys=together, values=together)


@bug("rounding", "texts of a batch that share their steps")
class OneStepForTheBatch(QuantizedKVCache):
    """The step of a channel is made over all batch rows: texts disturb one another."""

    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            rows = x.movedim(1, 3)  # (L, G, n, B, group, D)
            q = quantize(rows.flatten(3, 4), bits, -2)
            codes = q.codes.view_as(rows).movedim(3, 1)
            return Quantized(codes, q.scale.unsqueeze(1), q.zero.unsqueeze(1), bits)

        _advance(self, n, keys=together)


@bug("rounding", "all groups of one block sharing a step")
class OneStepForABlock(QuantizedKVCache):
    """All groups of a prompt get the step of the whole prompt."""

    def advance(self, n):
        _checked(self, n)

        def together(x, bits):
            q = quantize(x.flatten(3, 4), bits, -2)
            codes = q.codes.view_as(x)
            return Quantized(codes, q.scale.unsqueeze(3), q.zero.unsqueeze(3), bits)

        _advance(self, n, keys=together)


bug, patch = MUSEUM.section("QuantizedKVCache", check="every_split_leaves_the_same")


@bug("state", "a cache in which single tokens never complete a group")
class QuantizesOnlyThePrompt(QuantizedKVCache):
    """A block of one token completes no group; while writing, the cache grows in full
    precision."""

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


@bug("state", "groups that are counted anew in every block")
class GroupsWithinABlock(QuantizesOnlyThePrompt):
    """Groups are counted within a block, so those that cross its end are never complete."""

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


@bug("state", "tokens that are rounded again at every step")
class RoundsAgainAtEveryStep(QuantizedKVCache):
    """Groups end at the window and move with it: all is rounded again at every token."""

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


bug, patch = MUSEUM.section("QuantizedKVCache", check="a_refusal_changes_nothing")


@bug("state", "tokens of an append that was never advanced")
class KeepsWhatWasAbandoned(QuantizedKVCache):
    """Appended tokens pile up until advance, also those of a forward pass that was given up."""

    def append(self, layer, k, v):
        waiting = self.pending.get(layer)
        pair = super().append(layer, k, v)
        if waiting is not None:
            k, v = (torch.cat(both, dim=2) for both in zip(waiting, (k, v), strict=True))
            pair = super().append(layer, k, v)
        return pair


@bug("state", "a length that moves before advance")
class CountsInAppend(QuantizedKVCache):
    """The length moves with the first layer's append, before the forward pass is through."""

    def append(self, layer, k, v):
        counted = 0 if layer == 0 else k.shape[2]
        self.length -= counted
        pair = super().append(layer, k, v)
        self.length += k.shape[2]
        return pair

    def advance(self, n):
        self.length -= n
        super().advance(n)


@bug("arguments", "NaN that is let in and noticed only when it is rounded")
class LetsInNan(QuantizedKVCache):
    """NaN is noticed when its group is complete, many tokens later."""

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        safe = super().append(layer, k.nan_to_num(), v.nan_to_num())
        self.pending[layer] = (k, v)
        return safe


@bug("capacity", "a cache that drops what does not fit instead of refusing it")
class DropsWhatDoesNotFit(QuantizedKVCache):
    """Too long a block is cut silently."""

    def append(self, layer, k, v):
        room = self.max_len - self.length
        if room == 0:
            check_finite("keys", k)
            raise CacheFull("full")
        return super().append(layer, k[:, :, :room], v[:, :, :room])


@bug("capacity", "a cache whose last place is never used")
class LastPlaceUnused(QuantizedKVCache):
    """>= for >: the last place is never used."""

    def append(self, layer, k, v):
        if self.length + k.shape[2] >= self.max_len:
            raise CacheFull("full")
        return super().append(layer, k, v)


bug, patch = MUSEUM.section("QuantizedKVCache", check="quantized_cache_can_go_back")


@bug("state", "a truncate that leaves the groups counted")
class TruncatesTheLengthOnly(QuantizedKVCache):
    """The groups stay counted, so tokens that were forgotten come back."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        if n == 0:
            self.n_groups = 0


@bug("state", "a truncate after which a cut group is read from an old window")
class ForgetsTheCutGroup(QuantizedKVCache):
    """The first tokens of a cut group are not brought back; what lies in the window is read."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        self.n_groups = min(self.n_groups, n // self.group)


@bug("state", "a truncate that brings back the newest group instead of the cut one")
class BringsBackTheLastGroup(QuantizedKVCache):
    """It is the newest group that is brought back, and not the one that is cut."""

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


@bug("state", "a truncate that stops only at the end of a group")
class KeepsTheCutGroupWhole(QuantizedKVCache):
    """A cut group stays whole: more tokens are held than were asked for."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        whole = min(self.n_groups, -(-n // self.group))
        self.length, self.pending, self.n_groups = max(n, whole * self.group), {}, whole


@bug("state", "a reset that leaves the groups counted")
class ResetsTheLengthOnly(QuantizedKVCache):
    """reset() forgets the tokens and keeps counting their groups."""

    def reset(self):
        self.length = 0


@bug("capacity", "a truncate that drops as many tokens as it should keep")
class TruncatesByN(QuantizedKVCache):
    """n tokens are dropped instead of kept."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        super().truncate(len(self) - n)


bug, patch = MUSEUM.section("QuantizedKVCache", check="bytes_match_codes_scales_window")


@bug("form", "a cache in which every code takes a whole byte")
class UnpackedCodes(QuantizedKVCache):
    """Each code has a byte of its own, whatever its bits."""

    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -2, self.dtype, bits=8)
        self.values = _store(self, -1, self.dtype, bits=8)


@bug("form", "scales that are float32 whatever was asked for")
class ScalesInFloat32(QuantizedKVCache):
    """Scales and zeros are float32 whatever was asked for."""

    def __init__(self, config, batch, max_len, *sizes, **how):
        super().__init__(config, batch, max_len, *sizes, **how)
        self.keys = _store(self, -2, torch.float32)
        self.values = _store(self, -1, torch.float32)

    def append(self, layer, k, v):
        k, v = super().append(layer, k, v)
        return k.to(self.dtype), v.to(self.dtype)


@bug("form", "a cache that keeps original keys beside their codes")
class KeepsTheOriginals(QuantizedKVCache):
    """The original keys are kept as well, just in case."""

    def advance(self, n):
        kept = [k.clone() for k, _ in self.pending.values()]
        self.originals = [*getattr(self, "originals", []), *kept]
        super().advance(n)


@bug("state", "a last block that stays pending after it was counted")
class StaysPending(QuantizedKVCache):
    """What was appended stays pending when it is counted, so the last block is kept twice."""

    def advance(self, n):
        pending = dict(self.pending)
        super().advance(n)
        self.pending = pending


@bug("formula", "a cache that counts its codes and scales and not its window")
class CountsNoWindow(QuantizedKVCache):
    """nbytes() leaves the window out."""

    def nbytes(self):
        return self.keys.nbytes() + self.values.nbytes()


@bug("formula", "a cache that counts nothing but its codes")
class CountsOnlyCodes(QuantizedKVCache):
    """nbytes() is what the codes take; scales and window come free."""

    def nbytes(self):
        return self.keys.codes.nbytes + self.values.codes.nbytes


bug, patch = MUSEUM.section("quantized_cache_bytes", check="bytes_match_codes_scales_window")


@bug("formula", "bytes without any scales")
def bytes_without_scales(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """Four bits are half a byte, so the bill is a quarter: the scales are forgotten."""
    sizes = (config, n_tokens, batch, bits, group, window, bytes_per_element)
    return right.quantized_cache_bytes(*sizes)._replace(scales=0)


@bug("formula", "bytes without the window")
def bytes_without_window(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """The window is forgotten."""
    sizes = (config, n_tokens, batch, bits, group, window, bytes_per_element)
    return right.quantized_cache_bytes(*sizes)._replace(window=0)


@bug("formula", "bytes of a window that is billed as codes")
def bytes_of_a_quantized_window(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """The window is billed as if it were codes."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return whole._replace(window=whole.window * bits // (8 * bytes_per_element))


@bug("formula", "bytes in which the window's tokens are billed twice")
def bytes_with_the_window_twice(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """Every token has codes in this bill, also those of the window."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    every = 2 * config.n_layers * batch * config.n_kv_heads * n_tokens * config.head_dim
    return whole._replace(codes=every * bits // 8)


@bug("formula", "bytes without room for a group that is not complete")
def bytes_of_a_full_window_only(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """The tokens of a group that is not complete yet have no room in this bill."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    rows = 2 * config.n_layers * batch * config.n_kv_heads * config.head_dim * bytes_per_element
    return whole._replace(window=rows * min(n_tokens, window))


@bug("formula", "bytes of keys or of values, but not of both")
def bytes_of_keys_only(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    """Keys or values, but not both."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return CacheBytes(*(part // 2 for part in whole))


@bug("formula", "bytes of steps without their zeros")
def bytes_without_zeros(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """Each step is billed, and the zero that it needs is not."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return whole._replace(scales=whole.scales // 2)


@bug("formula", "bytes of keys with a step for each token")
def bytes_with_scales_by_token(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """Keys are billed a step a token, as values are."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return whole._replace(scales=whole.scales * 2 * group // (config.head_dim + group))


@bug("formula", "bytes in which every code has one, whatever its bits")
def bytes_of_a_byte_a_code(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """bits is not used: a code is billed a byte."""
    return right.quantized_cache_bytes(config, n_tokens, batch, 8, group, window, bytes_per_element)


@bug("head order", "bytes of as many heads as there are queries")
def bytes_of_query_heads(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """n_heads where n_kv_heads belongs."""
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return CacheBytes(*(part * config.n_heads // config.n_kv_heads for part in whole))


@bug("formula", "bytes of a single batch row")
def bytes_of_one_row(config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2):
    """The batch is forgotten."""
    return right.quantized_cache_bytes(config, n_tokens, 1, bits, group, window, bytes_per_element)


@bug("formula", "bytes in which groups that are not complete are codes")
def bytes_of_cut_groups(
    config, n_tokens, batch=1, bits=8, group=64, window=32, bytes_per_element=2
):
    """Tokens outside the window are billed as codes, also those whose group is not complete."""
    heads = 2 * config.n_layers * batch * config.n_kv_heads
    codes = max(0, n_tokens - window)
    whole = right.quantized_cache_bytes(
        config, n_tokens, batch, bits, group, window, bytes_per_element
    )
    return whole._replace(codes=heads * codes * config.head_dim * bits // 8)
