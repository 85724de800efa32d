"""Wrong answers to `WindowedKVCache`: what it stores, and what it gives back."""

import torch

from autograder.lessons.sliding_window.museum import MUSEUM
from course.minigpt.sliding_window import WindowedKVCache, place_of
from course.model.cache import CacheFull, check_block

bug = MUSEUM.section("WindowedKVCache", check="gone_is_gone_kept_is_kept")


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


bug = MUSEUM.section("WindowedKVCache", check="every_split_equals_the_windowed_model")


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


bug = MUSEUM.section("WindowedKVCache", check="append_alone_changes_nothing")


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
