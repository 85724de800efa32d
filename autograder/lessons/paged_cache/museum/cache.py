"""Known wrong answers to lesson 10: where tokens lie, and which blocks a cache has."""

from __future__ import annotations

from autograder.lessons.paged_cache.museum import MUSEUM

SELECT = "storage.index_select(1, table)"
WRITE = "storage[:, blocks, places] = new"
RETURN = "gathered.flatten(1, 2)[:, :end].unsqueeze(0)"
LAYERS = "((pool.keys[layer], k[0]), (pool.values[layer], v[0]))"
PLACES = "tokens % pool.block_size\n"
MISSING = "max(0, -(-end // pool.block_size) - len(self.table))"
TAKE = "new = pool.allocator.allocate(missing + len(shared))"
KEPT = "kept = -(-n // self.pool.block_size)"
GIVE = "        self.pool.allocator.release(self.table[kept:])\n"
CUT = "self.table, self.length = self.table[:kept], n"
LIMIT = """        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
"""
BYTES = "len(self.table) * (pool.keys.nbytes + pool.values.nbytes) // pool.n_blocks"

bug, patch = MUSEUM.section("PagedKVCache", check="every_split_through_any_table")

patch(
    "reads_in_storage_order",
    "writes",
    "blocks that are read in the order in which they lie in the pool",
    "The numbers are sorted before they are gathered: right until a table is not in order.",
    (SELECT, "storage.index_select(1, table.sort().values)"),
)
patch(
    "reads_the_first_blocks",
    "writes",
    "the first blocks of the pool, whatever the table says",
    "Blocks 0 to n - 1 are read: right for a single text in a new pool.",
    (SELECT, "storage[:, : len(table)]"),
)
patch(
    "reads_backwards",
    "writes",
    "a table that is read from its end",
    "The newest block comes first.",
    (SELECT, "storage.index_select(1, table.flip(0))"),
)
patch(
    "writes_from_the_block_start",
    "writes",
    "new tokens that are written from the start of a block each time",
    "The offset is counted within what is appended, not within the text.",
    (PLACES, "(tokens - self.length) % pool.block_size\n"),
)
patch(
    "writes_into_the_newest_block",
    "writes",
    "tokens that all go into the newest block",
    "The last entry of the table takes all that is new, also where a block ends in between.",
    ("table[tokens // pool.block_size]", "table[-1].expand(len(tokens))"),
)
patch(
    "returns_the_rest_of_the_block",
    "writes",
    "the room of the last block as if tokens were in it",
    "What is gathered is returned whole, with whatever stands behind the last token.",
    (RETURN, "gathered.flatten(1, 2).unsqueeze(0)"),
)
patch(
    "flattens_heads_into_blocks",
    "head order",
    "heads and blocks that are flattened in the wrong order",
    "Blocks come first, then heads: each head reads pieces of the others.",
    (RETURN, "gathered.transpose(0, 1).reshape(gathered.shape[0], -1, gathered.shape[3])"
             "[:, :end].unsqueeze(0)"),
)  # fmt: skip
patch(
    "flattens_places_into_blocks",
    "writes",
    "the first place of each block, then the second of each",
    "The axes of block and place change sides before they become one.",
    (RETURN, "gathered.transpose(1, 2).flatten(1, 2)[:, :end].unsqueeze(0)"),
)
patch(
    "stores_in_layer_0",
    "writes",
    "one layer's storage for all layers",
    "The layer is left out, and each overwrites what the one before stored.",
    (LAYERS, "((pool.keys[0], k[0]), (pool.values[0], v[0]))"),
)
patch(
    "values_for_keys",
    "writes",
    "values that come back as keys, and keys as values",
    "The two are returned in the wrong order.",
    ("return rows[0], rows[1]", "return rows[1], rows[0]"),
)
patch(
    "returns_what_is_new",
    "writes",
    "new tokens without those that are held",
    "What was given comes back.",
    ("return rows[0], rows[1]", "return k, v"),
)
patch(
    "returns_what_is_held",
    "off by one",
    "the tokens held without the new ones",
    "The slice ends at the old length.",
    (RETURN, RETURN.replace(":end]", ": max(1, self.length)]")),
)
patch(
    "returns_float32",
    "form",
    "float32 from a pool of another dtype",
    "What comes back is made float32.",
    ("return rows[0], rows[1]", "return rows[0].float(), rows[1].float()"),
    kind="dtype",
)
patch(
    "rounds_to_float32",
    "form",
    "numbers of a wider pool that pass through float32",
    "Keys and values are made float32 before they are stored.",
    (WRITE, "storage[:, blocks, places] = new.float().to(storage.dtype)"),
    kind="dtype",
)
patch(
    "needs_contiguous_keys",
    "form",
    "keys that must lie in memory in their order",
    "view(-1) works until the keys are a view, as those of a model are.",
    (WRITE, "storage[:, blocks, places] = new.view(-1).view(new.shape)"),
    kind="layout",
)
patch(
    "writes_into_keys",
    "state",
    "keys that are changed where the caller keeps them",
    "They are scaled in place, stored, and scaled back when they are read.",
    (WRITE, "new.mul_(2)\n            storage[:, blocks, places] = new / 2"),
    kind="arguments",
)
patch(
    "one_table_for_all",
    "state",
    "a table that all caches share",
    "The table stands in the class: two texts write into each other's blocks.",
    ("        self.table: list[int] = []\n", ""),
    ("    def __len__(self)", "    table = []\n\n    def __len__(self)"),
    kind="instances",
)
patch(
    "tables_of_four_blocks",
    "capacity",
    "a table with room for four blocks",
    "Only the first four blocks are gathered.",
    (SELECT, "storage.index_select(1, table[:4])"),
    kind="sizes",
)


bug, patch = MUSEUM.section("PagedKVCache", check="blocks_follow_the_length")

patch(
    "block_too_early",
    "off by one",
    "a block that is taken before a token needs it",
    "A text that fills its last block gets the next one at once.",
    (MISSING, "max(0, end // pool.block_size + 1 - len(self.table))"),
)
patch(
    "one_block_an_append",
    "capacity",
    "a new block for every append, though the last one has room",
    "Blocks are counted from what is new, not from where the text ends.",
    (MISSING, "-(-(end - self.length) // pool.block_size)"),
)
patch(
    "a_block_for_each_layer",
    "capacity",
    "a block for each layer, where one serves all",
    "As many blocks are taken as there are layers, and one of them is used.",
    (TAKE, "new = pool.allocator.allocate(missing * pool.config.n_layers + len(shared))"),
    ("        self.table += new\n", "        self.table += new[:missing]\n"),
)
patch(
    "all_blocks_at_once",
    "capacity",
    "blocks for the longest text, taken with the first token",
    "max_len is reserved: pages that waste as much as one piece.",
    (MISSING, "max(0, -(-self.max_len // pool.block_size) - len(self.table))"),
)
patch(
    "truncate_keeps_blocks",
    "state",
    "a truncate that keeps the blocks of what is forgotten",
    "Only the length moves back, as in a cache of one piece.",
    (f"        {KEPT}\n{GIVE}        {CUT}", "        self.length = n"),
)
patch(
    "truncate_loses_blocks",
    "state",
    "blocks that leave the table and never come back to the pool",
    "The table is cut, and nobody releases what was cut off.",
    (GIVE, ""),
)
patch(
    "truncate_keeps_them_listed",
    "state",
    "blocks that are released and stay in the table",
    "They are free for others, and still read.",
    (CUT, "self.length = n"),
)
patch(
    "truncate_rounds_down",
    "off by one",
    "a truncate that gives away a block with tokens in it",
    "n // block_size blocks are kept, and the tokens of the last one are lost.",
    (KEPT, "kept = n // self.pool.block_size"),
)
patch(
    "truncate_keeps_one_more",
    "state",
    "a truncate that keeps one block too many",
    "n // block_size + 1 blocks are kept, also where the last one would be empty.",
    (KEPT, "kept = n // self.pool.block_size + 1"),
)
patch(
    "truncate_frees_the_first",
    "state",
    "a truncate that forgets the oldest blocks",
    "The table is cut at its front.",
    (GIVE, "        gone = len(self.table) - kept\n"
           "        self.pool.allocator.release(self.table[:gone])\n"),
    (CUT, "self.table, self.length = self.table[gone:], n"),
)  # fmt: skip
patch(
    "truncate_to_the_same_does_nothing",
    "state",
    "blocks of an append that was never advanced, kept for good",
    "Nothing seems to be forgotten where n is the length, so nothing is released.",
    (KEPT, f"if n == self.length:\n            return\n        {KEPT}"),
)
patch(
    "reset_keeps_blocks",
    "state",
    "a reset that empties the table and releases nothing",
    "A new list for the table: the pool does not hear of it.",
    ("self.truncate(0)", "self.table, self.length = [], 0"),
)
patch(
    "bytes_of_the_pool",
    "formula",
    "the bytes of the whole pool",
    "The storage is the pool's, so its bytes are returned.",
    (BYTES, "pool.keys.nbytes + pool.values.nbytes"),
)
patch(
    "bytes_of_keys",
    "formula",
    "the bytes of keys alone",
    "Values are left out.",
    (BYTES, "len(self.table) * pool.keys.nbytes // pool.n_blocks"),
)
patch(
    "bytes_of_tokens",
    "formula",
    "the bytes of tokens in the place of blocks",
    "The room of the last block is not counted, though it is owned.",
    (BYTES, "self.length * (pool.keys.nbytes + pool.values.nbytes) // pool.n_blocks "
            "// pool.block_size"),
)  # fmt: skip
patch(
    "bytes_of_one_layer",
    "formula",
    "the bytes of one layer",
    "A block has its place in every layer, and one is counted.",
    (BYTES, f"{BYTES} // pool.config.n_layers"),
)


bug, patch = MUSEUM.section("PagedKVCache", check="full_changes_nothing")

patch(
    "takes_blocks_one_at_a_time",
    "capacity",
    "blocks that are taken one after the other until one is missing",
    "The refusal comes when some are in the table already.",
    (TAKE, "new = pool.allocator.allocate(len(shared))\n"
           "        for _ in range(missing):\n"
           "            self.table += pool.allocator.allocate(1)"),
    ("        self.table += new\n", ""),
    kind="refusals",
)  # fmt: skip
patch(
    "takes_blocks_before_it_looks",
    "capacity",
    "blocks that are taken before the limit is looked at",
    "What is refused by max_len has taken its blocks by then.",
    (LIMIT, ""),
    ("        self._own_blocks(end)\n", f"        self._own_blocks(end)\n{LIMIT}"),
    kind="refusals",
)
patch(
    "ignores_max_len",
    "capacity",
    "a cache that goes on beyond its max_len",
    "The pool is taken for the only limit.",
    (LIMIT, ""),
)
patch(
    "refuses_the_last_place",
    "off by one",
    "a cache that refuses its last place",
    "An end that equals max_len is refused.",
    ("if end > self.max_len:", "if end >= self.max_len:"),
)
patch(
    "wants_whole_blocks",
    "capacity",
    "a refusal that does not see the room in the last block",
    "New tokens must fit into free blocks, although the last block has places left.",
    (
        LIMIT,
        f"{LIMIT}        if -(-k.shape[2] // pool.block_size) > len(pool.allocator):\n"
        '            raise CacheFull("no block is free")\n',
    ),
)
patch(
    "cache_refuses_by_a_value_error",
    "arguments",
    "another exception where max_len is reached",
    "ValueError for everything that cannot be done.",
    ('raise CacheFull(f"{self.length} of', 'raise ValueError(f"{self.length} of'),
    kind="refusals",
)
patch(
    "gives_up_what_it_holds",
    "state",
    "a cache that is emptied when there is no room",
    "A full pool releases what this text has, and then refuses.",
    (
        TAKE,
        "if missing + len(shared) > len(pool.allocator):\n            self.reset()\n        "
        f"{TAKE}",
    ),
    kind="refusals",
)
patch(
    "stumbles_over_what_was_pending",
    "state",
    "an append that cannot be replaced by a shorter one",
    "An earlier append took more blocks than are needed now, and the number that is missing is below 0.",
    (MISSING, "-(-end // pool.block_size) - len(self.table)"),
)
