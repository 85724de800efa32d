"""Known wrong answers to lesson 10: who owns which block."""

from __future__ import annotations

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import BlockAllocator

bug = MUSEUM.section("BlockAllocator", check="blocks_are_given_once")


@bug("state", "counts that all allocators share", kind="instances")
class SharedByAllAllocators(BlockAllocator):
    """The list of free numbers stands in the class, so a second pool empties the first."""

    def __init__(self, n_blocks):
        super().__init__(n_blocks)
        SHARED[:] = self.free
        self.free = SHARED


SHARED: list[int] = []
