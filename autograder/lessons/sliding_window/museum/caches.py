"""Wrong answers to `WindowedKVCache`: what it stores, and what it gives back."""

import torch

from autograder.lessons.sliding_window.museum import MUSEUM
from course.minigpt.sliding_window import WindowedKVCache, place_of
from course.model.cache import CacheFull, check_block

HELD = "old_k, old_v = self.rows[:, layer, :, :, self.numbers >= 0]"
NUMBERS = "torch.cat([self.numbers[self.numbers >= 0], new])"
KEPT = "new[(new < self.n_sinks) | (new >= end - self.window)]"

bug, patch = MUSEUM.section("WindowedKVCache", check="gone_is_gone_kept_is_kept")
patch(
    "unwritten_places_returned",
    "writes",
    "a cache that also returns places to which nothing was written",
    "The whole storage comes back, however few tokens there are.",
    (HELD, "old_k, old_v = self.rows[:, layer]"),
    (NUMBERS, "torch.cat([self.numbers, new])"),
)
patch(
    "values_not_written",
    "writes",
    "a cache that stores keys and no values",
    "The line for the values is missing.",
    ("self.rows[1, layer, :, :, at] = v[:, :, kept - self.length]", "pass"),
)
patch(
    "keys_stored_as_values",
    "wiring",
    "a cache that stores the keys twice",
    "Copy and paste: the values are the keys.",
    ("= v[:, :, kept - self.length]", "= k[:, :, kept - self.length]"),
)
patch(
    "ring_of_one_layer",
    "writes",
    "a cache in which all layers share one ring",
    "The layer number is ignored.",
    (HELD, "old_k, old_v = self.rows[:, 0, :, :, self.numbers >= 0]"),
    ("self.rows[0, layer", "self.rows[0, 0"),
    ("self.rows[1, layer", "self.rows[1, 0"),
)
patch(
    "numbers_in_order_rows_not",
    "position",
    "numbers in the order of the text, for rows that lie in a ring",
    "places sorts the numbers, append returns the rows as they lie.",
    (NUMBERS, "torch.cat([self.numbers[self.numbers >= 0].sort().values, new])"),
)
patch(
    "numbers_from_the_newest_back",
    "position",
    "numbers of the last tokens, for rows that lie in a ring",
    "places counts back from the newest, as if rows lay in the order of the text.",
    (
        "new = torch.arange(self.length, self.length + n_new, device=self.numbers.device)",
        "end, held = self.length + n_new, int((self.numbers >= 0).sum())",
    ),
    (NUMBERS, "torch.arange(self.length - held, end)"),
)
patch(
    "new_rows_first",
    "writes",
    "new rows in front of the held ones, and their numbers behind",
    "The order of torch.cat is exchanged in append alone.",
    (
        "torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)",
        "torch.cat([k, old_k], dim=2), torch.cat([v, old_v], dim=2)",
    ),
)
patch(
    "held_rows_alone",
    "writes",
    "held rows without the new ones",
    "What is new is stored later, so what is stored comes back.",
    ("return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)", "return old_k, old_v"),
    (NUMBERS, "self.numbers[self.numbers >= 0]"),
)
patch(
    "rolls_one_step_early",
    "off by one",
    "a ring that gives up its oldest row one step too early",
    "The row is dropped before the last query that needs it has read it (transformers #37574).",
    (
        HELD,
        "early = (self.numbers > self.length + 1 - self.window) | (self.numbers < self.n_sinks)\n"
        "        old_k, old_v = self.rows[:, layer, :, :, early & (self.numbers >= 0)]",
    ),
    (
        NUMBERS,
        "torch.cat([self.numbers[(self.numbers >= 0) & ((self.numbers > self.length + 1 - self.window) "
        "| (self.numbers < self.n_sinks))], new])",
    ),
)
patch(
    "sinks_are_overwritten",
    "writes",
    "sinks whose places are overwritten when the ring comes round",
    "All places are one ring.",
    ("place_of(kept, self.window, self.n_sinks)", "kept % len(self.numbers)"),
)
patch(
    "rows_rounded_to_float32",
    "form",
    "rows that are rounded to float32 on their way in",
    "Rows are converted where they are stored, whatever the cache's dtype.",
    ("= k[:, :, kept - self.length]", "= k[:, :, kept - self.length].float().to(self.dtype)"),
    ("= v[:, :, kept - self.length]", "= v[:, :, kept - self.length].float().to(self.dtype)"),
    kind="dtype",
)
patch(
    "first_batch_row_for_all",
    "writes",
    "the first text's rows for every text of the batch",
    "Storage for one row, which broadcasts.",
    ("= k[:, :, kept - self.length]", "= k[:1, :, kept - self.length]"),
    kind="batch",
)


@bug("state", "numbers that belong to all caches", kind="instances")
class NumbersOfAllCaches(WindowedKVCache):
    """The numbers are a variable of the class."""

    shared = {}  # noqa: RUF012

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.numbers = self.shared.setdefault(len(self.numbers), self.numbers)
        self.numbers.fill_(-1)


@bug("state", "a result that the next call overwrites", kind="results")
class ReturnsItsScratch(WindowedKVCache):
    """Held and new rows are put together in a scratch that every layer uses again."""

    def append(self, layer, k, v):
        rows = torch.stack(super().append(layer, k, v))
        if getattr(self, "scratch", torch.empty(0)).shape != rows.shape:
            self.scratch = torch.empty_like(rows)
        self.scratch.copy_(rows)
        return self.scratch[0], self.scratch[1]

    def advance(self, n):
        super().advance(n)
        if n == 0:
            self.scratch = torch.empty(0)


bug, patch = MUSEUM.section("WindowedKVCache", check="every_split_equals_the_windowed_model")
patch(
    "long_chunk_keeps_its_first_tokens",
    "writes",
    "a long chunk of which the first tokens stay, and not the last",
    "Of a chunk that is longer than the window the first W are stored.",
    ("(new >= end - self.window)", "(new < self.length + self.window)"),
)
patch(
    "long_chunk_drops_its_sinks",
    "writes",
    "sinks that are lost where the prompt is longer than the window",
    "Only the last W tokens of a chunk are stored, and the sinks are not among them.",
    (KEPT, "new[new >= end - self.window]"),
)
patch(
    "only_the_last_of_a_chunk",
    "writes",
    "a chunk of which the last token alone is stored",
    "One token is written at each advance.",
    (KEPT, "new[-1:]"),
)
patch(
    "positions_restart_at_the_rings_length",
    "position",
    "positions that stop at the length of the ring",
    "len counts the rows that are held.",
    ("return self.length\n", "return min(self.length, len(self.numbers))\n"),
)
patch(
    "chunks_no_longer_than_the_window",
    "capacity",
    "a cache that refuses a chunk longer than its window",
    "What does not fit the ring is taken to be too much.",
    ("> self.max_len:", "> self.max_len or k.shape[2] > self.window:"),
)


@bug("mask", "a chunk whose first tokens find their window gone")
class ChunkDropsWhatItNeeds(WindowedKVCache):
    """All rows are cut to sinks and the last W before they are read (LLMs-from-scratch #1008)."""

    def places(self, n_new):
        numbers = super().places(n_new)
        return numbers[self.stays(numbers, n_new)]

    def append(self, layer, k, v):
        stays = self.stays(super().places(k.shape[2]), k.shape[2])
        k, v = super().append(layer, k, v)
        return k[:, :, stays], v[:, :, stays]

    def stays(self, numbers, n_new):
        return (numbers < self.n_sinks) | (numbers >= self.length + n_new - self.window)


bug, patch = MUSEUM.section("WindowedKVCache", check="append_alone_changes_nothing")
patch(
    "keeps_the_first_append",
    "state",
    "a second append that is not taken for the first",
    "What is pending already stays.",
    ("self.pending[layer] = (k, v)", "self.pending.setdefault(layer, (k, v))"),
)
patch(
    "numbers_move_in_append",
    "state",
    "numbers that are written at append",
    "append notes the numbers of the new tokens, advance their rows.",
    (
        "self.pending[layer] = (k, v)",
        "self.pending[layer] = (k, v)\n"
        "        end = self.length + k.shape[2]\n"
        "        new = torch.arange(max(self.length, end - self.window), end)",
    ),
    (
        "return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)",
        "if layer == self.config.n_layers - 1:\n"
        "            self.numbers[place_of(new, self.window, self.n_sinks)] = new\n"
        "        return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)",
    ),
)


@bug("state", "rows that are written at append")
class WritesAtOnce(WindowedKVCache):
    """append writes into the ring, as lesson 03's cache does; advance notes the numbers."""

    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        end = self.length + k.shape[2]
        new = torch.arange(self.length, end)
        kept = new[(new < self.n_sinks) | (new >= end - self.window)]
        at = place_of(kept, self.window, self.n_sinks)
        self.rows[0, layer, :, :, at] = k[:, :, kept - self.length]
        self.rows[1, layer, :, :, at] = v[:, :, kept - self.length]
        return rows


@bug("state", "a second append that comes behind the first")
class JoinsAppends(WindowedKVCache):
    """What is pending grows until advance."""

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull("full")
        if layer in self.pending:
            before = self.pending[layer]
            k, v = torch.cat([before[0], k], dim=2), torch.cat([before[1], v], dim=2)
        return super().append(layer, k, v)
