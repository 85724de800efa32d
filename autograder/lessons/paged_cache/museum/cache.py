"""Known wrong answers to lesson 10: caches that keep nothing in the pool."""

from __future__ import annotations

import copy

from autograder.lessons.paged_cache.museum import MUSEUM
from course.given.pages import check_cache_limit
from course.minigpt.kv_cache import KVCache
from course.model.cache import CacheFull

bug = MUSEUM.section("PagedKVCache", check="every_split_through_any_table")


@bug("writes", "a cache with storage of its own, beside the pool", kind="cheapest")
class LessonThreesCache(KVCache):
    """The cache of lesson 03 under the new name: all logits are right, and the pool stays empty."""

    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, check_cache_limit(pool.config, max_len), pool.dtype)
        self.table = [0, 1]


bug = MUSEUM.section("PagedKVCache", check="full_changes_nothing")


@bug("writes", "a cache that counts blocks of a pool in which it keeps nothing", kind="cheapest")
class CountsBlocksItDoesNotUse(KVCache):
    """Storage of its own, and a refusal when all caches together would need too many blocks."""

    every = []  # noqa: RUF012

    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, check_cache_limit(pool.config, max_len), pool.dtype)
        self.pool, self.table = pool, []
        self.every.append(self)

    def append(self, layer, k, v):
        lengths = [len(one) for one in self.every if one.pool is self.pool and one is not self]
        blocks = [-(-n // self.pool.block_size) for n in (*lengths, len(self) + k.shape[2])]
        if sum(blocks) > self.pool.n_blocks:
            raise CacheFull("no block is free")
        return super().append(layer, k, v)


bug = MUSEUM.section("PagedKVCache", check="forks_stay_apart")


@bug("writes", "forks with storage of their own, in which all was copied", kind="cheapest")
class CopiesAllAtAFork(KVCache):
    """Forks stay apart, for each has all tokens once more; the pool holds none of them."""

    every = []  # noqa: RUF012

    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, check_cache_limit(pool.config, max_len), pool.dtype)
        self.pool, self.table = pool, [len(self.every)] * 9
        self.every.append(self)

    def fork(self):
        return copy.deepcopy(self)

    def adopt(self, blocks):
        first = self.every[blocks[0]]
        self.keys, self.values = first.keys.clone(), first.values.clone()
        self.length = len(blocks) * self.pool.block_size
