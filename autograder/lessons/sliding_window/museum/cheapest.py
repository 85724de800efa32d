"""The cheapest wrong answers to lesson 08 that once got points, see `autograder cheapest`."""

import torch

from autograder.lessons.sliding_window.museum import MUSEUM
from course.minigpt.kv_cache import KVCache

bug = MUSEUM.section("WindowedKVCache", check="gone_is_gone_kept_is_kept")


@bug("capacity", "a cache from which nothing ever goes", kind="cheapest")
class FullCache(KVCache):
    """Lesson 03's cache: every row that a window needs comes back, and so does every other."""

    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        return torch.arange(len(self) + n_new)


bug = MUSEUM.section("WindowedKVCache", check="every_split_equals_the_windowed_model")


@bug("capacity", "a full cache of which only the window is shown", kind="cheapest")
class FullCacheBehindAWindow(KVCache):
    """Lesson 03's cache; what is too old is left out as it is read, and stays where it is."""

    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, max_len, dtype)
        self.window, self.n_sinks = window, n_sinks

    def places(self, n_new):
        tokens = torch.arange(len(self) + n_new)
        return tokens[(tokens < self.n_sinks) | (tokens >= len(self) - self.window)]

    def append(self, layer, k, v):
        at = self.places(k.shape[2])
        k, v = super().append(layer, k, v)
        return k[:, :, at], v[:, :, at]


bug = MUSEUM.section("WindowedKVCache", check="bytes_stay")


@bug("writes", "a storage into which nothing is written", kind="cheapest")
class EmptyStorage(KVCache):
    """A storage of the right size is allocated, and append returns what it was given."""

    def __init__(self, config, batch, max_len, window, n_sinks=0, dtype=torch.float32):
        super().__init__(config, batch, min(max_len, n_sinks + window), dtype)

    def append(self, layer, k, v):
        return k, v

    def advance(self, n):
        pass
