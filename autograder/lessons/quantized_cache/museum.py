"""Known wrong answers to lesson 07."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.bounds import check_between
from course.fast.quantized import Quantized, check_codes, check_quantizable
from course.minigpt import quantized_cache as right
from course.minigpt.quantized_cache import QuantizedKVCache

MUSEUM = Museum("quantized_cache")

RANGE = "low, high = torch.aminmax(x, dim=dim, keepdim=True)"
STEP = "(high.float() - low.float()) / (2**bits - 1)"
SMALLEST = (
    "scale = scale.clamp_min(torch.finfo(x.dtype).tiny)  # of equal numbers, or lost in float16"
)
DIVIDE = "steps = (x.float() - low.float()) / scale.float()  # by the scale that is stored"
CODES = "steps.round().clamp(0, 2**bits - 1).to(torch.uint8)"
RESULT = "return Quantized(codes, scale, low, bits)"
"""Lines of the reference's quantize."""


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
    "packs_without_shift",
    "writes",
    "two codes in the same four bits",
    "Both codes fall into the same four bits.",
    ("(codes[..., 1::2] << 4)", "codes[..., 1::2]"),
)


RECENT = "recent = min(max_len, window + group - 1)"
NOTE = "self.pending[layer] = (k, v)"
DONE = "done = max(0, (self.length - self.window) // self.group - self.n_groups)"
KEYS = "self.keys.write(self.n_groups, quantize(complete[0], self.bits, dim=-2))"
VALUES = "self.values.write(self.n_groups, quantize(complete[1], self.bits, dim=-1))"
KEPT = "self.recent[..., : rest.shape[4], :] = rest"
"""Lines of the reference's cache."""
KEYS_BY_TOKEN = ("complete[0], self.bits, dim=-2", "complete[0], self.bits, dim=-1")
VALUES_BY_CHANNEL = ("complete[1], self.bits, dim=-1", "complete[1], self.bits, dim=-2")
KEY_STEPS_BY_TOKEN = ("self.keys = GroupStore(*sizes, -2", "self.keys = GroupStore(*sizes, -1")
VALUE_STEPS_BY_CHANNEL = (
    "self.values = GroupStore(*sizes, -1",
    "self.values = GroupStore(*sizes, -2",
)

bug, patch = MUSEUM.section("QuantizedKVCache", check="groups_and_a_window")

patch(
    "ignores_the_window",
    "writes",
    "groups that are rounded without waiting for the window",
    "A group is quantized as soon as it is complete, and the newest tokens are codes at once.",
    ("(self.length - self.window) // self.group", "self.length // self.group"),
)
patch(
    "window_one_short",
    "writes",
    "a window that is one token too short",
    "A group is quantized while one token of it still belongs to the window.",
    ("(self.length - self.window) //", "(self.length - max(0, self.window - 1)) //"),
)
patch(
    "cuts_off_the_window",
    "off by one",
    "a slice up to minus the window, which is empty for a window of none",
    "rows[:-window] is nothing at all when the window is 0, so no group is ever complete.",
    (DONE, "done = rows[..., : -self.window, :].shape[4] // self.group"),
)
patch(
    "rounds_what_waits",
    "writes",
    "a window that is rounded while it waits",
    "The window is rounded, too, and then its numbers are rounded a second time.",
    (KEPT, KEPT.replace("= rest", "= dequantize(quantize(rest, self.bits, -1))")),
)
patch(
    "rounds_what_is_new",
    "writes",
    "new tokens that are rounded before they are complete groups",
    "New tokens come back rounded before anything was stored.",
    (NOTE, f"k, v = (dequantize(quantize(x, self.bits, -1)) for x in (k, v))\n        {NOTE}"),
)
patch(
    "advances_by_none_with_nothing_appended",
    "arguments",
    "an advance by no tokens that looks for what was appended",
    "advance(0) on a new cache reads pending rows that nobody appended: a KeyError.",
    ("if n == 0:\n            return\n        layers =", "layers ="),
)
patch(
    "keeps_floats",
    "writes",
    "a cache that never makes codes of anything",
    "Everything stays in full precision: perfect words, and nothing saved.",
    ("max(0, max_len - window) // group, (", "0, ("),
    (RECENT, "recent = max_len"),
    (DONE, "done = 0"),
)


bug, patch = MUSEUM.section("QuantizedKVCache", check="keys_by_channel_values_by_token")

patch(
    "keys_by_token",
    "rounding",
    "keys of one token sharing a step",
    "Keys share a step across channels, so one large channel takes the small ones' levels.",
    KEY_STEPS_BY_TOKEN,
    KEYS_BY_TOKEN,
)
patch(
    "keys_by_token_into_the_store",
    "rounding",
    "keys that are quantized along their channels, for which the store has no steps",
    "Keys are quantized along the channels, and the store has room for a step a channel.",
    KEYS_BY_TOKEN,
)
patch(
    "values_by_channel_into_the_store",
    "rounding",
    "values that are quantized along the tokens, for which the store has no steps",
    "Values are quantized along the tokens, and the store has room for a step a token.",
    VALUES_BY_CHANNEL,
)
patch(
    "values_by_channel",
    "rounding",
    "values of one channel sharing a step",
    "Values share a step across tokens, so a loud token drowns the others.",
    VALUE_STEPS_BY_CHANNEL,
    VALUES_BY_CHANNEL,
)
patch(
    "swaps_the_axes",
    "rounding",
    "keys rounded as values should be, and values as keys",
    "Keys per token, values per channel: the other way round.",
    KEY_STEPS_BY_TOKEN,
    VALUE_STEPS_BY_CHANNEL,
    KEYS_BY_TOKEN,
    VALUES_BY_CHANNEL,
)


@bug("rounding", "codes of old groups read by the newest group's steps")
class NewestScaleForAll(QuantizedKVCache):
    """One scale is kept, that of the newest group, and older codes are read by it."""

    def advance(self, n):
        super().advance(n)
        for store in (self.keys, self.values) if self.n_groups else ():
            newest = slice(self.n_groups - 1, self.n_groups)
            store.scale[:, :, :, : self.n_groups] = store.scale[:, :, :, newest]
            store.zero[:, :, :, : self.n_groups] = store.zero[:, :, :, newest]


patch(
    "one_step_for_a_group",
    "rounding",
    "a single step for a whole group",
    "A group of a head has a single step for all its channels and tokens.",
    (
        KEYS,
        """for store, x in zip((self.keys, self.values), complete, strict=True):
                q = quantize(x.flatten(-2), self.bits, dim=-1)
                scale, zero = q.scale.unsqueeze(-1), q.zero.unsqueeze(-1)
                store.write(self.n_groups, Quantized(q.codes.view_as(x), scale, zero, q.bits))""",
    ),
    (VALUES, ""),
)
patch(
    "one_step_for_the_batch",
    "rounding",
    "texts of a batch that share their steps",
    "The step of a channel is made over all batch rows: texts disturb one another.",
    (
        KEYS,
        """texts = complete[0].movedim(1, 3)  # (L, G, n, B, group, D)
            q = quantize(texts.flatten(3, 4), self.bits, dim=-2)
            codes, steps = q.codes.view_as(texts).movedim(3, 1), [q.scale, q.zero]
            steps = [step.unsqueeze(1) for step in steps]
            self.keys.write(self.n_groups, Quantized(codes, *steps, q.bits))""",
    ),
)
patch(
    "one_step_for_a_block",
    "rounding",
    "all groups of one block sharing a step",
    "All groups of a prompt get the step of the whole prompt.",
    (
        KEYS,
        """q = quantize(complete[0].flatten(3, 4), self.bits, dim=-2)
            codes, steps = q.codes.view_as(complete[0]), [q.scale, q.zero]
            steps = [step.unsqueeze(3) for step in steps]
            self.keys.write(self.n_groups, Quantized(codes, *steps, q.bits))""",
    ),
)


bug, patch = MUSEUM.section("QuantizedKVCache", check="every_split_leaves_the_same")

patch(
    "quantizes_only_the_prompt",
    "state",
    "a cache in which single tokens never complete a group",
    "A block of one token completes no group; while writing, the cache grows in full precision.",
    (RECENT, "recent = max_len"),
    ("done = max(0,", "done = 0 if n < self.group else max(0,"),
)
patch(
    "groups_within_a_block",
    "state",
    "groups that are counted anew in every block",
    "Groups are counted within a block, so those that cross its end are never complete.",
    (RECENT, "recent = max_len"),
    (DONE, "done = max(0, n - self.window) // self.group"),
)
patch(
    "rounds_again_at_every_step",
    "state",
    "tokens that are rounded again at every step",
    "Groups end at the window and move with it: all is rounded again at every token.",
    (RECENT, "recent = max_len"),
    (DONE, "done = 0"),
    (
        KEPT,
        f"""{KEPT}
        end = max(0, self.length - self.window)
        old = self.recent[..., end % self.group : end, :].unflatten(4, (-1, self.group))
        for x, dim in zip(old, (-2, -1), strict=True):
            x.copy_(dequantize(quantize(x, self.bits, dim)))""",
    ),
)


bug, patch = MUSEUM.section("QuantizedKVCache", check="a_refusal_changes_nothing")

patch(
    "keeps_what_was_abandoned",
    "state",
    "tokens of an append that was never advanced",
    "Appended tokens pile up until advance, also those of a forward pass that was given up.",
    (
        NOTE,
        f"""if layer in self.pending:
            k, v = (torch.cat(both, dim=2) for both in zip(self.pending[layer], (k, v)))
        {NOTE}""",
    ),
)


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


patch(
    "lets_in_nan",
    "arguments",
    "NaN that is let in and noticed only when it is rounded",
    "NaN is noticed when its group is complete, many tokens later.",
    ('check_finite("keys", k)', ""),
    ('check_finite("values", v)', ""),
)
patch(
    "drops_what_does_not_fit",
    "capacity",
    "a cache that drops what does not fit instead of refusing it",
    "Too long a block is cut silently.",
    (
        "if self.length + k.shape[2] > self.max_len:",
        """room = self.max_len - self.length
        k, v = k[:, :, :room], v[:, :, :room]
        if room == 0:""",
    ),
)
patch(
    "last_place_unused",
    "capacity",
    "a cache whose last place is never used",
    ">= for >: the last place is never used.",
    ("k.shape[2] > self.max_len", "k.shape[2] >= self.max_len"),
)


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


patch(
    "brings_back_the_last_group",
    "state",
    "a truncate that brings back the newest group instead of the cut one",
    "It is the newest group that is brought back, and not the one that is cut.",
    ("dequantize(store.read(layer, kept + 1))", "dequantize(store.read(layer, self.n_groups))"),
    ("old[:, :, kept, :rest]", "old[:, :, -1, :rest]"),
)


@bug("state", "a truncate that stops only at the end of a group")
class KeepsTheCutGroupWhole(QuantizedKVCache):
    """A cut group stays whole: more tokens are held than were asked for."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        whole = min(self.n_groups, -(-n // self.group))
        self.length, self.pending, self.n_groups = max(n, whole * self.group), {}, whole


patch(
    "resets_the_length_only",
    "state",
    "a reset that leaves the groups counted",
    "reset() forgets the tokens and keeps counting their groups.",
    ("self.truncate(0)", "self.length = 0"),
)


@bug("capacity", "a truncate that drops as many tokens as it should keep")
class TruncatesByN(QuantizedKVCache):
    """n tokens are dropped instead of kept."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        super().truncate(len(self) - n)


bug, patch = MUSEUM.section("QuantizedKVCache", check="bytes_match_codes_scales_window")

patch(
    "unpacked_codes",
    "form",
    "a cache in which every code takes a whole byte",
    "Each code has a byte of its own, whatever its bits.",
    ("(config, batch, room, group, bits)", "(config, batch, room, group, 8)"),
)
patch(
    "scales_in_float32",
    "form",
    "scales that are float32 whatever was asked for",
    "Scales and zeros are float32 whatever was asked for.",
    ("*sizes, -2, dtype", "*sizes, -2, torch.float32"),
    ("*sizes, -1, dtype", "*sizes, -1, torch.float32"),
    ("return rows[0], rows[1]", "return rows[0].to(self.dtype), rows[1].to(self.dtype)"),
)


@bug("form", "a cache that keeps original keys beside their codes")
class KeepsTheOriginals(QuantizedKVCache):
    """The original keys are kept as well, just in case."""

    def advance(self, n):
        kept = [k.clone() for k, _ in self.pending.values()]
        self.originals = [*getattr(self, "originals", []), *kept]
        super().advance(n)


patch(
    "stays_pending",
    "state",
    "a last block that stays pending after it was counted",
    "What was appended stays pending when it is counted, so the last block is kept twice.",
    ("self.length, self.pending = self.length + n, {}", "self.length += n"),
)
patch(
    "counts_no_window",
    "formula",
    "a cache that counts its codes and scales and not its window",
    "nbytes() leaves the window out.",
    (" + self.recent.nbytes", ""),
)
patch(
    "counts_only_codes",
    "formula",
    "a cache that counts nothing but its codes",
    "nbytes() is what the codes take; scales and window come free.",
    (
        "self.keys.nbytes() + self.values.nbytes() + self.recent.nbytes",
        "self.keys.codes.nbytes + self.values.codes.nbytes",
    ),
)


bug, patch = MUSEUM.section("quantized_cache_bytes", check="bytes_match_codes_scales_window")

patch(
    "bytes_without_scales",
    "formula",
    "bytes without any scales",
    "Four bits are half a byte, so the bill is a quarter: the scales are forgotten.",
    ("heads * n_groups * (config.head_dim + group) * bytes_per_element", "0"),
)
patch(
    "bytes_without_window",
    "formula",
    "bytes without the window",
    "The window is forgotten.",
    ("heads * recent * config.head_dim * bytes_per_element", "0"),
)
patch(
    "bytes_of_a_quantized_window",
    "formula",
    "bytes of a window that is billed as codes",
    "The window is billed as if it were codes.",
    ("recent * config.head_dim * bytes_per_element", "recent * config.head_dim * bits // 8"),
)
patch(
    "bytes_with_the_window_twice",
    "formula",
    "bytes in which the window's tokens are billed twice",
    "Every token has codes in this bill, also those of the window.",
    ("codes=heads * n_groups * group *", "codes=heads * n_tokens *"),
)
patch(
    "bytes_of_a_full_window_only",
    "formula",
    "bytes without room for a group that is not complete",
    "The tokens of a group that is not complete yet have no room in this bill.",
    ("min(n_tokens, window + group - 1)", "min(n_tokens, window)"),
)
patch(
    "bytes_of_keys_only",
    "formula",
    "bytes of keys or of values, but not of both",
    "Keys or values, but not both.",
    ("heads = 2 * config.n_layers", "heads = config.n_layers"),
)
patch(
    "bytes_without_zeros",
    "formula",
    "bytes of steps without their zeros",
    "Each step is billed, and the zero that it needs is not.",
    ("group) * bytes_per_element", "group) * bytes_per_element // 2"),
)
patch(
    "bytes_with_scales_by_token",
    "formula",
    "bytes of keys with a step for each token",
    "Keys are billed a step a token, as values are.",
    ("(config.head_dim + group)", "2 * group"),
)
patch(
    "bytes_of_a_byte_a_code",
    "formula",
    "bytes in which every code has one, whatever its bits",
    "bits is not used: a code is billed a byte.",
    (" * bits // 8", ""),
)
patch(
    "bytes_of_query_heads",
    "head order",
    "bytes of as many heads as there are queries",
    "n_heads where n_kv_heads belongs.",
    ("config.n_kv_heads", "config.n_heads"),
)
patch(
    "bytes_of_one_row",
    "formula",
    "bytes of a single batch row",
    "The batch is forgotten.",
    ("config.n_layers * batch *", "config.n_layers *"),
)
patch(
    "bytes_of_cut_groups",
    "formula",
    "bytes in which groups that are not complete are codes",
    "Tokens outside the window are billed as codes, also those whose group is not complete.",
    ("codes=heads * n_groups * group *", "codes=heads * max(0, n_tokens - window) *"),
)
patch(
    "bytes_of_less_than_no_group",
    "off by one",
    "bytes of a text shorter than the window, of which groups are taken away",
    "What is shorter than the window has no group; here it has fewer than none.",
    ("max(0, n_tokens - window) // group", "(n_tokens - window) // group"),
)
patch(
    "bytes_of_one_group_at_least",
    "off by one",
    "bytes of a group that a short text does not have",
    "In groups of one token, a text shorter than the window is billed a group.",
    ("max(0, n_tokens", "max(1, n_tokens"),
)
patch(
    "bytes_of_4_bits_by_default",
    "arguments",
    "bytes of 4-bit codes where no bits were asked for",
    "The default of the signature was changed to what is stored most often.",
    ("bits: int = 8", "bits: int = 4"),
)
