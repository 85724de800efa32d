"""Known wrong answers to lesson 07: which tokens `QuantizedKVCache` makes codes of, and how."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM
from autograder.lessons.quantized_cache.museum.cache_lines import (
    DONE,
    KEPT,
    KEY_STEPS_BY_TOKEN,
    KEYS,
    KEYS_BY_TOKEN,
    NOTE,
    RECENT,
    ROWS,
    VALUE_STEPS_BY_CHANNEL,
    VALUES,
    VALUES_BY_CHANNEL,
)
from course.minigpt.quantized_cache import QuantizedKVCache

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
    "rounds_what_is_new_as_groups_are",
    "writes",
    "new tokens that are rounded as if they were a group already",
    "Keys are rounded along the block's tokens and values along channels, before anything is complete.",
    (
        NOTE,
        "k, v = (dequantize(quantize(x, self.bits, d)) for x, d in ((k, -2), (v, -1)))\n"
        f"        {NOTE}",
    ),
)
patch(
    "notes_what_is_new_rounded",
    "writes",
    "new tokens that are noted rounded, and come back exact only the first time",
    "What append returns is exact; what it notes has been through codes.",
    (
        NOTE,
        "self.pending[layer] = tuple(dequantize(quantize(x, self.bits, -1)) for x in (k, v))",
    ),
)
patch(
    "joins_layers_the_other_way_round",
    "wiring",
    "layers that are joined in reverse order",
    "The last layer's tokens are stored as the first one's.",
    ("torch.stack(layers, dim=1)", "torch.stack(layers[::-1], dim=1)"),
)
patch(
    "advances_by_none_with_nothing_appended",
    "state",
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


bug, patch = MUSEUM.section("QuantizedKVCache", check="groups_and_a_window")
patch(
    "window_one_long",
    "writes",
    "a window that is one token too long",
    "A group waits until one token more than the window stands behind it.",
    ("(self.length - self.window) //", "(self.length - self.window - 1) //"),
)
patch(
    "window_in_whole_groups",
    "writes",
    "a window that is rounded up to whole groups",
    "Window and groups are counted apart, as whole groups each.",
    (
        "(self.length - self.window) // self.group",
        "self.length // self.group - -(-self.window // self.group)",
    ),
)
patch(
    "one_group_a_step",
    "writes",
    "at most one group that becomes codes in an advance",
    "A prompt completes several groups at once; only the first of them becomes codes.",
    (RECENT, "recent = max_len + 1"),
    (DONE, f"{DONE}\n        done = min(done, 1)"),
)
patch(
    "newest_tokens_become_codes",
    "writes",
    "groups that are cut from the wrong end",
    "The newest tokens become codes, and the oldest wait.",
    (
        "complete = rows[..., : done * self.group, :]",
        "complete = rows[..., rows.shape[4] - done * self.group :, :]",
    ),
    (
        "rest = rows[..., done * self.group :, :]",
        "rest = rows[..., : rows.shape[4] - done * self.group, :]",
    ),
)
patch(
    "window_is_not_moved",
    "writes",
    "a window in which tokens stay that have become codes",
    "What became codes is still at the front of the window.",
    (
        "rest = rows[..., done * self.group :, :]",
        "rest = rows[..., : rows.shape[4] - done * self.group, :]",
    ),
)
patch(
    "groups_of_every_so_manyth_token",
    "writes",
    "groups of tokens that are no neighbours",
    "(group, n) for (n, group): every n-th token goes into a group.",
    (".unflatten(4, (done, self.group))", ".unflatten(4, (self.group, done)).transpose(4, 5)"),
)
patch(
    "writes_groups_to_the_front",
    "writes",
    "groups that are all written to the first place",
    "Every new group overwrites the first.",
    ("self.keys.write(self.n_groups", "self.keys.write(0"),
    ("self.values.write(self.n_groups", "self.values.write(0"),
)
patch(
    "counts_the_newest_groups_alone",
    "state",
    "a count of groups that starts anew in every step",
    "= for +=: only the groups of the last step are counted.",
    ("self.n_groups += done", "self.n_groups = done"),
)
patch(
    "returns_what_is_new",
    "writes",
    "new tokens without those that are held",
    "append returns what it was given.",
    (f"rows.append({ROWS})", "rows.append(new)"),
)
patch(
    "returns_new_tokens_rounded",
    "writes",
    "new tokens that come back rounded, though they are kept as they came",
    "append returns what the codes of the new tokens would say.",
    (ROWS, ROWS.replace("new]", "dequantize(quantize(new, self.bits, -1))]")),
)
patch(
    "looks_at_all_layers_for_room",
    "capacity",
    "room in which the tokens of every layer are counted",
    "What other layers have appended is added up, as if each token were one for every layer.",
    (
        "self.length + k.shape[2] > self.max_len",
        "self.length + sum(p[0].shape[2] for p in self.pending.values()) + k.shape[2] > self.max_len",
    ),
)
patch(
    "returns_no_window",
    "writes",
    "codes and new tokens, and nothing between them",
    "What waits in full precision is left out of what comes back.",
    (ROWS, "torch.cat([old, new], dim=2)"),
)
patch(
    "returns_the_whole_window",
    "writes",
    "a window that comes back with its free places",
    "The window comes back whole, also where nothing was written yet.",
    (ROWS, "torch.cat([old, recent[layer], new], dim=2)"),
)
patch(
    "returns_the_window_first",
    "writes",
    "the newest tokens in front of the oldest",
    "Window, codes, new: the order in which they were thought of.",
    (ROWS, "torch.cat([recent[layer, :, :, :held], old, new], dim=2)"),
)
patch(
    "returns_what_is_new_too_early",
    "writes",
    "new tokens in front of those that wait",
    "Codes, new, window.",
    (ROWS, "torch.cat([old, new, recent[layer, :, :, :held]], dim=2)"),
)
patch(
    "reads_the_codes_of_layer_0",
    "writes",
    "the codes of layer 0, whichever layer was asked",
    "store.read(0, …) in every layer.",
    ("store.read(layer, self.n_groups)", "store.read(0, self.n_groups)"),
)
patch(
    "reads_the_window_of_layer_0",
    "writes",
    "the window of layer 0, whichever layer was asked",
    "recent[0] in every layer.",
    ("recent[layer, :, :, :held]", "recent[0, :, :, :held]"),
)
patch(
    "values_for_keys",
    "writes",
    "values that were stored as keys, and keys as values",
    "(v, k) is noted as (k, v).",
    (NOTE, "self.pending[layer] = (v, k)"),
)
patch(
    "returns_float32",
    "form",
    "float32 from a cache of another dtype",
    "What comes back is made float32, as codes once were.",
    ("return rows[0], rows[1]", "return rows[0].float(), rows[1].float()"),
    kind="dtype",
)
patch(
    "keeps_a_window_in_float16",
    "form",
    "a window in float16, whatever was asked for",
    "The window is float16, as in the picture, and rounds what must stay exact.",
    ("torch.zeros(shape, dtype=dtype", "torch.zeros(shape, dtype=torch.float16"),
    ("return rows[0], rows[1]", "return rows[0].to(self.dtype), rows[1].to(self.dtype)"),
    kind="dtype",
)
patch(
    "notes_a_flat_view",
    "form",
    "keys that must lie in memory in their order",
    "k.view(-1) works until the keys are a view, as those of a model are.",
    (NOTE, f"k = k.view(-1).view(k.shape)\n        {NOTE}"),
    kind="layout",
)
patch(
    "writes_into_keys",
    "state",
    "keys that are changed where the caller keeps them",
    "They are scaled in place before they are noted, and scaled back in what is returned.",
    (NOTE, f"k.mul_(0.5)\n        {NOTE}"),
    kind="arguments",
)
patch(
    "one_pending_for_all_caches",
    "state",
    "pending tokens that all caches share",
    "pending = {} stands in the class, so two texts that are written side by side mix.",
    (
        "        self.pending: dict[int, tuple[Tensor, Tensor]] = {}  # by layer, until advance\n",
        "",
    ),
    ("    def __len__(self)", "    pending = {}\n\n    def __len__(self)"),
    kind="instances",
)
patch(
    "room_for_64_in_the_window",
    "capacity",
    "a window with room for 64 tokens, however many wait",
    "The window is allocated for group and window as they usually are.",
    (RECENT, "recent = min(max_len, 64)"),
    (KEPT, "self.recent[..., : min(64, rest.shape[4]), :] = rest[..., :64, :]"),
    kind="sizes",
)


bug, patch = MUSEUM.section("QuantizedKVCache", check="keys_by_channel_values_by_token")
patch(
    "steps_of_row_0",
    "rounding",
    "the steps of the first text for all texts of a batch",
    "Scale and zero of batch row 0 are stored for every row.",
    (
        KEYS,
        """q = quantize(complete[0], self.bits, dim=-2)
            steps = (part[:, :1].expand_as(part) for part in (q.scale, q.zero))
            self.keys.write(self.n_groups, Quantized(q.codes, *steps, q.bits))""",
    ),
    kind="batch",
)
