"""Known wrong answers to lesson 10: who shares a block, and who copies it."""

from __future__ import annotations

import copy

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import PagedKVCache

bug = MUSEUM.section("PagedKVCache", check="forks_stay_apart")


@bug("state", "a fork that is a shallow copy of its original")
class ForkByReference(PagedKVCache):
    """copy.copy makes a second object, and its table is the first one's (Rapid-MLX, issue 196)."""

    def fork(self):
        self.pool.allocator.share(self.table)
        return copy.copy(self)
