"""Known wrong answers to lesson 10: who owns which block."""

from __future__ import annotations

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import BlockAllocator

bug = MUSEUM.section("BlockAllocator", check="blocks_are_given_once")


@bug("state", "a list of free blocks that all allocators share", kind="instances")
class SharedByAllAllocators(BlockAllocator):
    """The list of free numbers stands in the class, so a second pool empties the first."""

    def __init__(self, n_blocks):
        super().__init__(n_blocks)
        SHARED[:] = self.free
        self.free = SHARED


SHARED: list[int] = []


bug = MUSEUM.section("BlockAllocator", check="a_refusal_is_whole")


@bug("arguments", "an allocator that refuses whatever is shared or released", kind="cheapest")
class RefusesWhateverIsShared(BlockAllocator):
    """What is always refused is refused whole, and nobody ever shares or gives back a block."""

    def share(self, blocks):
        raise ValueError("no block can be shared")

    def release(self, blocks):
        raise ValueError("no block can be released")
