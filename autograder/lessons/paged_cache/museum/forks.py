"""Known wrong answers to lesson 10: who shares a block, and who copies it."""

from __future__ import annotations

import copy

from autograder.lessons.paged_cache.museum import MUSEUM
from course.minigpt.paged_cache import PagedKVCache

SHARED = """shared = [
            i for i in range(first, len(self.table)) if pool.allocator.owners(self.table[i]) > 1
        ]"""
FIRST = "self.length // self.pool.block_size\n"
COPY_KEYS = "            pool.keys[:, :, copy] = pool.keys[:, :, old]  # in all layers\n"
COPY_VALUES = "            pool.values[:, :, copy] = pool.values[:, :, old]\n"
GIVE_UP = "            pool.allocator.release([old])\n"
EXCHANGE = "            self.table[i] = copy\n"
TWIN = "twin.table, twin.length = list(self.table), self.length"
SHARE = "        self.pool.allocator.share(self.table)\n"
ADOPTED = "self.length = len(blocks) * self.pool.block_size"

bug, patch = MUSEUM.section("PagedKVCache", check="forks_stay_apart")

patch(
    "no_copy_on_write",
    "state",
    "a shared block that is written without a copy",
    "Three users, one wrong text (atlas, issue 1193): each wrote into the block that all were reading.",
    (SHARED, "shared = []"),
)
patch(
    "fork_does_not_count",
    "state",
    "a fork whose blocks do not know that they have two owners",
    "The table is copied, the counts stay: the first to leave takes the other's memory along.",
    (SHARE, ""),
)
patch(
    "fork_shares_the_list",
    "state",
    "a fork that shares the table itself",
    "One list for both: what one of them appends stands in the other's table.",
    (TWIN, "twin.table, twin.length = self.table, self.length"),
)


@bug("state", "a fork that is a shallow copy of its original")
class ForkByReference(PagedKVCache):
    """copy.copy makes a second object, and its table is the first one's (Rapid-MLX, issue 196)."""

    def fork(self):
        self.pool.allocator.share(self.table)
        return copy.copy(self)


patch(
    "fork_forgets_the_length",
    "state",
    "a fork that has blocks and no tokens",
    "The length stays 0, and the next token is written over the first.",
    (TWIN, "twin.table = list(self.table)"),
)
patch(
    "fork_takes_its_length_from_the_table",
    "state",
    "a fork that offers places as tokens before they are written",
    "All places of the blocks count as tokens (nano-vllm, issue 208, offers blocks before they are "
    "written).",
    (TWIN, "twin.table = list(self.table)\n"
           "        twin.length = min(self.max_len, len(self.table) * self.pool.block_size)"),
)  # fmt: skip
patch(
    "fork_forgets_max_len",
    "state",
    "a fork with another limit than its original",
    "The new cache is made with the pool alone.",
    ("PagedKVCache(self.pool, self.max_len)", "PagedKVCache(self.pool)"),
)
patch(
    "copies_keys_only",
    "writes",
    "a copied block without its values",
    "Keys go along, values stay what the pool had there.",
    (COPY_VALUES, ""),
)
patch(
    "copies_values_only",
    "writes",
    "a copied block without its keys",
    "Values go along, keys stay what the pool had there.",
    (COPY_KEYS, ""),
)
patch(
    "copies_layer_0_only",
    "writes",
    "a block that is copied in the first layer alone",
    "The first append copies, for its own layer; for the others the block is no longer shared.",
    (COPY_KEYS, COPY_KEYS.replace("[:, :, ", "[0, :, ")),
    (COPY_VALUES, COPY_VALUES.replace("[:, :, ", "[0, :, ")),
)
patch(
    "copies_head_0_only",
    "head order",
    "a block that is copied for the first head alone",
    "One index too many, and the other heads keep what the pool had there.",
    (COPY_KEYS, COPY_KEYS.replace("[:, :, ", "[:, 0, ")),
    (COPY_VALUES, COPY_VALUES.replace("[:, :, ", "[:, 0, ")),
)
patch(
    "copies_nothing",
    "writes",
    "a new block in the place of a shared one, without what stood in it",
    "The table gets its own block, and the tokens of the old one stay behind.",
    (COPY_KEYS, ""),
    (COPY_VALUES, ""),
)
patch(
    "copies_the_other_way",
    "writes",
    "a copy from the new block into the old one",
    "The two sides of the assignment are exchanged: every owner loses the tokens.",
    (COPY_KEYS, "            pool.keys[:, :, old] = pool.keys[:, :, copy]\n"),
    (COPY_VALUES, "            pool.values[:, :, old] = pool.values[:, :, copy]\n"),
)
patch(
    "table_not_updated",
    "state",
    "a copy that nobody reads, for the table keeps the old block",
    "The block is copied and released, and the table still names the old one.",
    (EXCHANGE, ""),
)
patch(
    "wipes_what_it_forgets",
    "state",
    "places that are cleared although another owner reads them",
    "truncate sets the forgotten places of the last block to 0; a fork still has tokens there.",
    (
        "        self.pool.allocator.release(self.table[kept:])\n",
        """        for place in range(n, min(kept * self.pool.block_size, len(self))):
            block = self.table[place // self.pool.block_size]
            self.pool.keys[:, :, block, place % self.pool.block_size] = 0
        self.pool.allocator.release(self.table[kept:])
""",
    ),
)
patch(
    "adopted_length_in_blocks",
    "state",
    "a length that is counted in blocks",
    "Two blocks adopted are two tokens held, and the next is written over the third.",
    (ADOPTED, "self.length = len(blocks)"),
)
patch(
    "adopted_length_forgotten",
    "state",
    "adopted blocks without their tokens",
    "The table is taken over, the length stays 0.",
    (ADOPTED, "self.length = 0"),
)
patch(
    "hit_not_counted",
    "state",
    "adopted blocks whose new owner is not counted",
    "A hit takes over the numbers; when the first owner leaves, strangers write there.",
    ("        self.pool.allocator.share(blocks)\n", ""),
)
patch(
    "adopts_the_caller_s_list",
    "state",
    "a table that is the list of the caller",
    "The list is kept as it came, and the caller goes on using it.",
    ("self.table = list(blocks)", "self.table = blocks"),
    kind="results",
)


bug, patch = MUSEUM.section("PagedKVCache", check="one_block_is_copied")

patch(
    "fork_copies_all",
    "cost",
    "a fork that copies every block at once",
    "A fork gets blocks of its own, so that nobody needs to count.",
    (SHARE, ""),
    (
        TWIN,
        """twin.table, twin.length = self.pool.allocator.allocate(len(self.table)), self.length
        for mine, old in zip(twin.table, self.table, strict=True):
            self.pool.keys[:, :, mine] = self.pool.keys[:, :, old]
            self.pool.values[:, :, mine] = self.pool.values[:, :, old]""",
    ),
    kind="cost",
)
patch(
    "fork_copies_the_last_block",
    "cost",
    "a fork that copies its last block at once",
    "The block that will be written next is copied early, also where nobody writes.",
    (
        TWIN,
        f"""{TWIN}
        if twin.length % self.pool.block_size:
            old, mine = twin.table[-1], self.pool.allocator.allocate(1)[0]
            self.pool.keys[:, :, mine] = self.pool.keys[:, :, old]
            self.pool.values[:, :, mine] = self.pool.values[:, :, old]
            self.pool.allocator.release([old])
            twin.table[-1] = mine""",
    ),
    kind="cost",
)
patch(
    "old_block_kept",
    "state",
    "a copied block whose old owner still counts",
    "The table has its copy, and the share of the old block is never given up.",
    (GIVE_UP, ""),
)
patch(
    "last_owner_copies",
    "cost",
    "a copy although nobody else owns the block",
    "Whoever was forked once copies: the last owner, too.",
    ("pool.allocator.owners(self.table[i]) > 1", "pool.allocator.owners(self.table[i]) >= 1"),
    kind="cost",
)
patch(
    "copies_all_shared_blocks",
    "cost",
    "a copy of every shared block, though one is written",
    "The first token of a fork copies its whole past.",
    ("range(first, len(self.table))", "range(len(self.table))"),
    kind="cost",
)
patch(
    "copies_full_blocks",
    "cost",
    "a copy of the last block although it is full",
    "The last block is copied when anything is written, also behind it.",
    (FIRST, "max(0, self.length - 1) // self.pool.block_size\n"),
    kind="cost",
)
patch(
    "gives_up_before_it_has_a_copy",
    "capacity",
    "a share that is given up before there is a block for the copy",
    "The old block is released first; where no block is free, it is in the table and no longer owned.",
    (
        "        new = pool.allocator.allocate(missing + len(shared))",
        "        for i in shared:\n"
        "            pool.allocator.release([self.table[i]])\n"
        "        new = pool.allocator.allocate(missing + len(shared))",
    ),
    (GIVE_UP, ""),
    kind="refusals",
)
patch(
    "frees_the_shared_block",
    "state",
    "a shared block that is released once too often",
    "The copy releases the old block for both owners.",
    (GIVE_UP, "            for _ in range(pool.allocator.owners(old)):\n"
              "                pool.allocator.release([old])\n"),
)  # fmt: skip
