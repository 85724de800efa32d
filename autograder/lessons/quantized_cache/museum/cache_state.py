"""Known wrong answers to lesson 07: what `QuantizedKVCache` keeps, refuses, forgets and counts."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM
from autograder.lessons.quantized_cache.museum.cache_lines import (
    ALL_BYTES,
    DONE,
    FULL,
    KEPT,
    NOTE,
    RECENT,
)
from course.minigpt.quantized_cache import QuantizedKVCache
from course.model.bounds import check_between

bug, patch = MUSEUM.section("QuantizedKVCache", check="every_split_leaves_the_same")

patch(
    "quantizes_only_the_prompt",
    "state",
    "a cache in which single tokens never complete a group",
    "A block of one token completes no group; while writing, the cache grows in full precision.",
    (RECENT, "recent = max_len + group"),
    ("done = max(0,", "done = 0 if n < self.group else max(0,"),
)
patch(
    "groups_within_a_block",
    "state",
    "groups that are counted anew in every block",
    "Groups are counted within a block, so those that cross its end are never complete.",
    (RECENT, "recent = max_len + group"),
    (DONE, "done = max(0, n - self.window) // self.group"),
)
patch(
    "rounds_again_at_every_step",
    "state",
    "tokens that are rounded again at every step",
    "Groups end at the window and move with it: all is rounded again at every token.",
    (RECENT, "recent = max_len + group"),
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


bug, patch = MUSEUM.section("QuantizedKVCache", check="every_split_leaves_the_same")
patch(
    "quantizes_everything_again",
    "cost",
    "codes that are all made anew in every step",
    "Whenever a token comes, all codes are read, dequantized, quantized and written again.",
    (
        "        if done:\n",
        """        for store, dim in ((self.keys, -2), (self.values, -1)) if self.n_groups else ():
            layers = range(self.config.n_layers)
            old = [dequantize(store.read(layer, self.n_groups)) for layer in layers]
            store.write(0, quantize(torch.stack(old), self.bits, dim))
        if done:
""",
    ),
    kind="cost",
)
patch(
    "copies_the_stores_at_every_step",
    "cost",
    "codes that are all copied in every step",
    "What is stored is cloned, so that nobody sees a half-written group.",
    (
        "        if done:\n",
        """        for store in (self.keys, self.values):
            store.codes, store.scale = store.codes.clone(), store.scale.clone()
        if done:
""",
    ),
    kind="cost",
)
patch(
    "grows_its_stores_by_cat",
    "cost",
    "codes that are all copied whenever a group is complete",
    "Each group is appended with torch.cat, which copies every group before it.",
    (
        "        if done:\n",
        """        for store in (self.keys, self.values) if done else ():
            whole = [store.codes[:, :, :, : self.n_groups], store.codes[:, :, :, self.n_groups :]]
            store.codes = torch.cat(whole, dim=3)
        if done:
""",
    ),
    kind="cost",
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


bug, patch = MUSEUM.section("QuantizedKVCache", check="a_refusal_changes_nothing")
patch(
    "notes_before_it_refuses",
    "state",
    "tokens that were noted and then refused",
    "pending is written before the room is looked at, so refused tokens replace good ones.",
    (FULL, f"        {NOTE}\n{FULL}"),
    kind="refusals",
)
patch(
    "first_append_stays",
    "state",
    "tokens of an abandoned append in the place of new ones",
    "setdefault: what is pending is never replaced.",
    (NOTE, "self.pending.setdefault(layer, (k, v))"),
    kind="refusals",
)
patch(
    "full_is_a_value_error",
    "arguments",
    "a full cache that raises another exception than CacheFull",
    "ValueError for CacheFull: whoever waits for room does not hear of it.",
    ("raise CacheFull(", "raise ValueError("),
    kind="refusals",
)
patch(
    "never_full",
    "capacity",
    "a cache that is never full when tokens are appended",
    "The room is looked at in advance only, after all layers have computed.",
    ("self.length + k.shape[2] > self.max_len", "False"),
    kind="refusals",
)
patch(
    "full_when_no_place_is_left",
    "capacity",
    "a look at the room before the new tokens, and not at theirs",
    "Refused is what comes to a full cache, not what does not fit.",
    ("self.length + k.shape[2] > self.max_len", "self.length >= self.max_len"),
    kind="refusals",
)
patch(
    "counts_all_that_is_pending",
    "state",
    "tokens that were appended and not counted",
    "advance(n) takes all that is pending, however small n is.",
    ("[..., :n, :]", ""),
    ("self.length + n, {}", "self.length + n, {}\n        n = new.shape[4]"),
)
patch(
    "counts_the_last_that_are_pending",
    "off by one",
    "the last of the pending tokens in the place of the first",
    "advance(n) takes the last n.",
    ("[..., :n, :]", "[..., -n:, :]"),
)


patch(
    "forgets_pending_at_advance_0",
    "state",
    "pending tokens that an advance by none forgets",
    "advance(0) clears what is pending, although nothing was counted.",
    (
        "if n == 0:\n            return",
        "if n == 0:\n            self.pending = {}\n            return",
    ),
)
patch(
    "looks_at_the_heads_for_room",
    "capacity",
    "room that is compared with the number of heads",
    "k.shape[1] are the heads; the tokens are k.shape[2].",
    ("self.length + k.shape[2] > self.max_len", "self.length + k.shape[1] > self.max_len"),
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


bug, patch = MUSEUM.section("QuantizedKVCache", check="quantized_cache_can_go_back")
patch(
    "truncate_keeps_pending",
    "state",
    "a truncate after which pending tokens still count",
    "What was appended and not advanced is left where it is.",
    (
        "self.length, self.n_groups, self.pending = n, kept, {}",
        "self.length, self.n_groups = n, kept",
    ),
)
patch(
    "brings_back_the_end_of_the_group",
    "state",
    "a truncate that brings back the last tokens of the cut group",
    "-rest: for :rest.",
    ("old[:, :, kept, :rest]", "old[:, :, kept, -rest:]"),
)
patch(
    "brings_back_the_first_group",
    "state",
    "a truncate that brings back the first group instead of the cut one",
    "It is group 0 that is brought back, and not the one that is cut.",
    ("old[:, :, kept, :rest]", "old[:, :, 0, :rest]"),
)
patch(
    "brings_back_one_layer",
    "state",
    "a truncate that brings back the cut group of layer 0 alone",
    "The loop over the layers is forgotten.",
    (
        "for layer in range(self.config.n_layers):\n                    old",
        "for layer in range(1):\n                    old",
    ),
)
patch(
    "brings_back_keys_alone",
    "state",
    "a truncate that brings back the keys of the cut group and not its values",
    "The loop over keys and values ends with the keys.",
    ("zip((self.keys, self.values), self.recent, strict=True)", "zip([self.keys], self.recent)"),
)
patch(
    "forgets_the_cut_group_whole",
    "state",
    "a truncate that drops a group which should be cut",
    "What is left of a cut group is dropped: fewer tokens are held than were asked for.",
    (
        "self.length, self.n_groups, self.pending = n, kept, {}",
        "n = n if kept == self.n_groups else kept * self.group\n"
        "        self.length, self.n_groups, self.pending = n, kept, {}",
    ),
)


bug, patch = MUSEUM.section("QuantizedKVCache", check="bytes_match_codes_scales_window")

patch(
    "unpacked_codes",
    "form",
    "a cache in which every code takes a whole byte",
    "Each code has a byte of its own, whatever its bits.",
    ("(config, batch, groups, group, bits)", "(config, batch, groups, group, 8)"),
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


bug, patch = MUSEUM.section("QuantizedKVCache", check="bytes_match_codes_scales_window")
patch(
    "window_as_long_as_the_text",
    "capacity",
    "a window with room for all tokens",
    "recent is allocated for max_len, so the codes come on top of a whole cache.",
    (RECENT, "recent = max_len"),
)
patch(
    "window_of_whole_groups",
    "off by one",
    "a window with room for one token too many",
    "window + group: but with the last of these a group is complete.",
    (RECENT, "recent = min(max_len, window + group)"),
)
patch(
    "keeps_a_whole_cache_beside",
    "form",
    "a cache that keeps all tokens in full precision beside its codes",
    "A buffer for what append returns, as large as the whole text.",
    (
        "self.length = 0  # tokens held",
        "self.length = 0  # tokens held\n"
        "        whole = (2, batch, config.n_kv_heads, max_len, config.head_dim)\n"
        "        self.out = torch.zeros(whole, dtype=dtype)",
    ),
    kind="cost",
)
patch(
    "window_grows_by_cat",
    "cost",
    "a window that is as large as what waits in it",
    "The rest is kept as it comes, so the storage is a new one at every step.",
    (KEPT, "self.recent = rest"),
    kind="cost",
)
patch(
    "counts_numbers_of_the_window",
    "formula",
    "a cache that counts the numbers of its window, not their bytes",
    "numel() for nbytes.",
    ("+ self.recent.nbytes", "+ self.recent.numel()"),
)
patch(
    "counts_keys_twice",
    "formula",
    "a cache in which values are billed as keys are",
    "2 * keys: but values have as many steps as there are tokens.",
    (ALL_BYTES, "2 * self.keys.nbytes() + self.recent.nbytes"),
)
patch(
    "counts_what_is_filled",
    "formula",
    "a cache that counts what it holds, not what it occupies",
    "Only groups and tokens that are there are counted, and the rest is taken for free.",
    (
        f"return {ALL_BYTES}",
        "held = self.length - self.n_groups * self.group\n"
        "        sizes = [part[:, :, :, : self.n_groups].nbytes for store in (self.keys, self.values)\n"
        "                 for part in (store.codes, store.scale, store.zero)]\n"
        "        return sum(sizes) + self.recent[..., :held, :].nbytes",
    ),
)
