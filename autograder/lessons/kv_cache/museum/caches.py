"""Wrong answers to `KVCache` and `kv_cache_bytes`."""

import torch

from autograder.lessons.kv_cache.museum import MUSEUM
from course.minigpt.kv_cache import KVCache
from course.model.cache import CacheFull, check_block, check_cache_sizes

bug = MUSEUM.section("KVCache", check="cache_returns_what_it_was_given")


@bug(
    "cost",
    "a cache that grows by torch.cat, and so copies every old row at every step",
    kind="cost",
)
class GrowsByCat(KVCache):
    """The plainest cache: right numbers, and work that the picture promised to save."""

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        check_cache_sizes(config, batch, max_len)
        self.config, self.batch, self.max_len, self.dtype = config, batch, max_len, dtype
        shape = (batch, config.n_kv_heads, 0, config.head_dim)
        self.rows = [
            [torch.empty(shape, dtype=dtype) for _ in "kv"] for _ in range(config.n_layers)
        ]
        self.length = 0

    def append(self, layer, k, v):
        check_block(self.config, self.batch, self.dtype, layer, k, v)
        if self.length + k.shape[2] > self.max_len:
            raise CacheFull("full")
        old = [rows[:, :, : self.length] for rows in self.rows[layer]]
        self.rows[layer] = [torch.cat(pair, dim=2) for pair in zip(old, (k, v), strict=True)]
        return tuple(self.rows[layer])

    def nbytes(self):
        return sum(rows.nbytes for pair in self.rows for rows in pair)


@bug("state", "a cache that keeps the tensors that it is given, and no copies", kind="results")
class KeepsTheCallersTensors(KVCache):
    """The first block is kept as it came, the later ones behind it: it is still the caller's."""

    def append(self, layer, k, v):
        returned = super().append(layer, k, v)
        if self.length:
            k, v = (torch.cat([a, b], 2) for a, b in zip(self.first[layer], (k, v), strict=True))
            return k, v
        self.first = {**getattr(self, "first", {}), layer: (k, v)}
        return returned


@bug("state", "caches that count on one length for the class", kind="instances")
class OneLengthForAll(KVCache):
    """The length stands in a list of the class, and all caches move it."""

    lengths = [0]  # noqa: RUF012 (the mistake)

    def append(self, layer, k, v):
        self.length = self.lengths[0]
        return super().append(layer, k, v)

    def advance(self, n):
        self.length = self.lengths[0] = self.lengths[0] + n

    def reset(self):
        self.length = self.lengths[0] = 0


@bug(
    "writes",
    "a cache that returns the rows of every layer in one and the same tensor",
    kind="results",
)
class OneResultForAllLayers(KVCache):
    """What comes back is written into one buffer, and the next layer's append changes it."""

    def append(self, layer, k, v):
        if not hasattr(self, "buffer"):
            self.buffer = torch.zeros_like(self.keys[0]), torch.zeros_like(self.values[0])
        rows = super().append(layer, k, v)
        views = [part[:, :, : rows[0].shape[2]] for part in self.buffer]
        for view, part in zip(views, rows, strict=True):
            view.copy_(part)
        return views[0], views[1]


bug = MUSEUM.section("KVCache", check="two_conversations_stay_apart")


@bug("state", "caches that write into one and the same storage", kind="instances")
class SharedStorage(KVCache):
    """The storage is made once for the class, so all caches of one size write into it."""

    _storage: dict = {}  # noqa: RUF012 (the mistake)

    def __init__(self, config, batch, max_len, dtype=torch.float32, device="cpu"):
        super().__init__(config, batch, max_len, dtype, device)
        shared = self._storage.setdefault((config, batch, max_len, dtype), (self.keys, self.values))
        self.keys, self.values = shared


bug = MUSEUM.section("KVCache", check="full_cache_changes_nothing")


@bug(
    "state", "a block that was never advanced, and that stays before the next one", kind="refusals"
)
class EveryLayerHasAnEnd(KVCache):
    """Each layer writes behind its own last block, wherever the text ends."""

    def append(self, layer, k, v):
        held, self.length = self.length, getattr(self, "ends", {}).get(layer, self.length)
        try:
            rows = super().append(layer, k, v)
            self.ends = {**getattr(self, "ends", {}), layer: rows[0].shape[2]}
        finally:
            self.length = held
        return rows

    def truncate(self, n):
        super().truncate(n)
        self.ends = {}

    def reset(self):
        self.truncate(0)
