"""Known wrong answers to lesson 07: which tokens `QuantizedKVCache` makes codes of, and how."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.minigpt.quantized_cache import QuantizedKVCache

bug = MUSEUM.section("QuantizedKVCache", check="keys_by_channel_values_by_token")


@bug("rounding", "codes of old groups read by the newest group's steps")
class NewestScaleForAll(QuantizedKVCache):
    """One scale is kept, that of the newest group, and older codes are read by it."""

    def advance(self, n):
        super().advance(n)
        for store in (self.keys, self.values) if self.n_groups else ():
            newest = slice(self.n_groups - 1, self.n_groups)
            store.scale[:, :, :, : self.n_groups] = store.scale[:, :, :, newest]
            store.zero[:, :, :, : self.n_groups] = store.zero[:, :, :, newest]
