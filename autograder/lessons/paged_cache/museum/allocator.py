"""Known wrong answers to lesson 10: who owns which block."""

from __future__ import annotations

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import BlockAllocator

TAKE = "blocks = [self.free.pop() for _ in range(n)]"
BACK = """            if self.counts[block] == 0:
                self.free.append(block)"""
NO_ROOM = """        if n > len(self.free):
            raise CacheFull(f"{n} blocks are needed, {len(self.free)} of {self.n_blocks} are free")
"""
SHARED_FREE = """            if self.counts[block] == 0:
                raise ValueError(f"block {block} is free and cannot be shared")
        for block in blocks:
            self.counts[block] += 1"""
TOO_FEW = """            if self.counts[block] < times:
                raise ValueError(f"block {block} has {self.counts[block]} owners, not {times}")"""
LOOK = "for block, times in Counter(blocks).items():"

bug, patch = MUSEUM.section("BlockAllocator", check="blocks_are_given_once")

patch(
    "hands_a_block_out_twice",
    "state",
    "blocks that stay free although they were handed out",
    "The first n free numbers are read and never taken off the list: the next caller gets them, too.",
    (TAKE, "blocks = self.free[:n]"),
)
patch(
    "frees_although_shared",
    "state",
    "a block that is free as soon as one of its owners leaves",
    "release puts the number back without a look at the count.",
    (BACK, "            self.free.append(block)"),
)
patch(
    "frees_at_the_first_release",
    "state",
    "a release that takes all owners away at once",
    "The count is set to 0, whoever else owns the block.",
    ("self.counts[block] -= 1", "self.counts[block] = 0"),
)
patch(
    "never_frees",
    "state",
    "blocks that are released and never come back",
    "The count goes down to 0, and nobody puts the number back.",
    (BACK, ""),
)
patch(
    "owner_not_counted",
    "state",
    "a shared block whose new owner is not counted",
    "share looks whether the blocks are taken and leaves their counts at 1.",
    (
        "        for block in blocks:\n            self.counts[block] += 1",
        "",
    ),
)
patch(
    "shares_a_named_block_once",
    "state",
    "a block that is named twice and counted once",
    "share goes over the set of the list.",
    ("        for block in blocks:\n            self.counts[block] += 1",
     "        for block in set(blocks):\n            self.counts[block] += 1"),
)  # fmt: skip
patch(
    "releases_a_named_block_once",
    "state",
    "a block that is named twice and released once",
    "release goes over the set of the list.",
    ("        for block in blocks:\n            self.counts[block] -= 1",
     "        for block in set(blocks):\n            self.counts[block] -= 1"),
)  # fmt: skip
patch(
    "last_block_is_kept_back",
    "off by one",
    "an allocator that never hands out its last block",
    "n == len(self) is refused, too.",
    ("if n > len(self.free):", "if n >= len(self.free):"),
)
patch(
    "counts_from_one_block_less",
    "off by one",
    "one block fewer than the allocator was made for",
    "The numbers begin at 1 and end as before.",
    ("list(range(n_blocks))", "list(range(1, n_blocks))"),
)
patch(
    "new_blocks_have_no_owner",
    "state",
    "blocks that are handed out without an owner",
    "Counts start when a block is shared for the first time.",
    ("self.counts[block] = 1", "self.counts[block] = 0"),
)
patch(
    "old_counts_are_kept",
    "state",
    "blocks that are handed out with one owner more than before",
    "The count is not set but increased: all is well while it was 0, as it is. Here it starts at 1.",
    ("[0] * n_blocks", "[1] * n_blocks"),
)
patch(
    "len_counts_all_blocks",
    "state",
    "a count of all blocks in the place of the free ones",
    "len() is the size of the pool, whatever is in use.",
    ("return len(self.free)", "return self.n_blocks"),
)
patch(
    "len_counts_used_blocks",
    "state",
    "a count of used blocks in the place of the free ones",
    "len() says how many are in use, as it does for a list.",
    ("return len(self.free)", "return self.n_blocks - len(self.free)"),
)
patch(
    "owners_say_only_whether",
    "form",
    "owners that are yes or no, not how many",
    "1 where a block is in use.",
    ("return self.counts[block]", "return min(1, self.counts[block])"),
)
patch(
    "keeps_the_list_it_returns",
    "state",
    "a list of free blocks that the caller gets and empties",
    "When all free blocks are asked for, the list of free blocks itself is returned.",
    (TAKE, "blocks = self.free if n == len(self.free) else [self.free.pop() for _ in range(n)]"),
    ("        return blocks", "        self.taken = blocks\n        return blocks"),
    kind="results",
)
patch(
    "empties_the_list_it_is_given",
    "state",
    "a release that empties the list of the caller",
    "Blocks are popped from the table of the cache that releases them.",
    (
        "        for block in blocks:\n            self.counts[block] -= 1",
        "        while blocks:\n            block = blocks.pop()\n            self.counts[block] -= 1",
    ),
    kind="arguments",
)


@bug("state", "counts that all allocators share", kind="instances")
class SharedByAllAllocators(BlockAllocator):
    """The list of free numbers stands in the class, so a second pool empties the first."""

    def __init__(self, n_blocks):
        super().__init__(n_blocks)
        SHARED[:] = self.free
        self.free = SHARED


SHARED: list[int] = []

patch(
    "four_blocks_whatever_is_asked",
    "capacity",
    "a pool whose size is a number in the code",
    "Four free numbers are written down, as in the picture.",
    ("list(range(n_blocks))", "list(range(4))"),
    kind="sizes",
)


patch(
    "takes_two_by_default",
    "arguments",
    "two blocks where no number was given",
    "One for keys and one for values: but a block has room for both.",
    ("n: int = 1", "n: int = 2"),
)


bug, patch = MUSEUM.section("BlockAllocator", check="a_refusal_is_whole")

patch(
    "gives_what_is_left",
    "capacity",
    "fewer blocks than were asked for, in the place of a refusal",
    "A slice of a list that is too short is short, and nobody says so.",
    (NO_ROOM, "        n = min(n, len(self.free))\n"),
)
patch(
    "pops_before_it_looks",
    "capacity",
    "blocks that are lost when there are too few",
    "Numbers are popped one after the other until one is missing; those before are gone.",
    (NO_ROOM, ""),
    (
        TAKE,
        """blocks = []
        for _ in range(n):
            if not self.free:
                raise CacheFull("no block is free")
            blocks.append(self.free.pop())""",
    ),
    kind="refusals",
)
patch(
    "refuses_by_an_index_error",
    "arguments",
    "a list that is popped until Python refuses",
    "pop from an empty list raises, so no check seems needed.",
    (NO_ROOM, ""),
    kind="refusals",
)
patch(
    "refuses_by_a_value_error",
    "arguments",
    "another exception where no block is free",
    "ValueError for everything that cannot be done.",
    ("raise CacheFull(", "raise ValueError("),
    kind="refusals",
)
patch(
    "double_free",
    "state",
    "a block that is released twice and then is free twice",
    "No look at the count before it goes down: the number stands on the stack twice.",
    (f"        {LOOK}\n{TOO_FEW}\n", ""),
    (BACK, BACK.replace("== 0", "<= 0")),
)
patch(
    "release_stops_half_way",
    "state",
    "a release that is refused when half of it is done",
    "Look and change stand in one loop: blocks in front of the bad one are gone.",
    (f"        {LOOK}\n{TOO_FEW}\n", ""),
    (
        "            self.counts[block] -= 1",
        "            if self.counts[block] == 0:\n"
        '                raise ValueError("a free block")\n'
        "            self.counts[block] -= 1",
    ),
    kind="refusals",
)
patch(
    "release_ignores_free_blocks",
    "arguments",
    "free blocks that are passed over without a word",
    "A block that is free already is skipped.",
    (f"        {LOOK}\n{TOO_FEW}\n", ""),
    (
        "            self.counts[block] -= 1",
        "            if self.counts[block] == 0:\n"
        "                continue\n"
        "            self.counts[block] -= 1",
    ),
)
patch(
    "release_counts_a_name_once",
    "arguments",
    "a list that may name a block more often than it has owners",
    "Each name is looked up alone; that it stands there twice is not seen.",
    ("if self.counts[block] < times:", "if self.counts[block] < 1:"),
)
patch(
    "shares_a_free_block",
    "state",
    "a free block that gets an owner and stays on the list of free ones",
    "share trusts its caller.",
    (SHARED_FREE, "            self.counts[block] += 1"),
)
patch(
    "share_stops_half_way",
    "state",
    "a share that is refused when half of it is done",
    "Look and change stand in one loop.",
    (SHARED_FREE, SHARED_FREE.replace("        for block in blocks:\n", "")),
    kind="refusals",
)
patch(
    "share_looks_at_the_first_block",
    "arguments",
    "a list of which only the first block is looked at",
    "If the first one is taken, the others will be, too.",
    (
        SHARED_FREE,
        SHARED_FREE.replace("            if self", "            if block == blocks[0] and self"),
    ),
)
