"""Known wrong answers to lesson 09: blocks that are read where they lie."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.minigpt.split_read import attend_part, finish, merge

HELD = "held = min(size, length - first)"
PLACE = "pool[table[place]]"

bug, patch = MUSEUM.section("attend_blocks", check="blocks_where_they_lie")

patch(
    "last_block_to_its_end",
    "writes",
    "the last block read to its end, with what others left there",
    "Every block counts in full.",
    (HELD, "held = size"),
)
patch(
    "blocks_in_storage_order",
    "wiring",
    "blocks in the order in which they lie in the pool",
    "The table is sorted: the block that is not full is not the last one any more.",
    (PLACE, "pool[sorted(table[: -(-length // size)])[place]]"),
)
patch(
    "table_ignored",
    "wiring",
    "the first blocks of the pool, whoever's they are",
    "The place in the table is taken for the block's number.",
    (PLACE, "pool[place]"),
)
patch(
    "table_read_backwards",
    "wiring",
    "the last entries of the table first",
    "table[-1 - place]: the newest block first.",
    (PLACE, "pool[table[-1 - place]]"),
)
patch(
    "every_block_of_the_table",
    "capacity",
    "every block that the table names, needed or not",
    "The loop runs over the table, not over the tokens.",
    ("range(0, length, size)", "range(0, len(table) * size, size)"),
    (HELD, "held = size if length - first <= 0 else min(size, length - first)"),
)
patch(
    "full_blocks_alone",
    "off by one",
    "tokens of a last block that is not full left out",
    "length // size blocks, and at least one.",
    ("range(0, length, size)", "range(0, max(size, length - size + 1), size)"),
)
patch(
    "values_of_other_blocks",
    "wiring",
    "keys by the table, values in the order of the pool",
    "The table is looked up for keys alone.",
    (
        "    part = attend_part",
        "    v = values[place][None, :, :held]\n        part = attend_part",
    ),
)
patch(
    "one_token_less_in_the_last_block",
    "off by one",
    "a last block without its newest token",
    "The newest token's place, (length - 1) % size, is taken for a count.",
    (HELD, "held = max(1, min(size, length - 1 - first))"),
)
patch(
    "at_most_ten_blocks",
    "capacity",
    "conversations of ten blocks at most",
    "A table of a fixed width.",
    ("range(0, length, size)", "range(0, min(length, 10 * size), size)"),
    kind="sizes",
)


@bug("cost", "blocks that are gathered before they are read", kind="cost")
def gathers_the_blocks(q, keys, values, table, length):
    """keys[table] is one line, and writes the conversation's cache once more."""
    size = keys.shape[2]
    chosen = torch.tensor(table[: -(-length // size)])
    k, v = (pool[chosen].transpose(0, 1).flatten(1, 2)[None, :, :length] for pool in (keys, values))
    return finish(attend_part(q, k, v))


@bug("cost", "blocks that are copied one by one", kind="cost")
def clones_the_blocks(q, keys, values, table, length):
    """Indexing with a list copies, where indexing with a number gives a view."""
    size, whole = keys.shape[2], None
    for place, first in enumerate(range(0, length, size)):
        held = min(size, length - first)
        k, v = (pool[[table[place]]][:, :, :held] for pool in (keys, values))
        part = attend_part(q, k, v)
        whole = part if whole is None else merge(whole, part)
    return finish(whole)


@bug("cost", "scores of all blocks in the pool, others' hidden by a mask", kind="cost")
def masks_the_pool(q, keys, values, table, length):
    """The whole pool as one row of keys: every conversation's keys are read, and written."""
    n, G, size, D = keys.shape
    mask = torch.zeros(n, size, dtype=torch.bool)
    for place, first in enumerate(range(0, length, size)):
        mask[table[place], : min(size, length - first)] = True
    k, v = (pool.transpose(0, 1).reshape(1, G, n * size, D) + 0 for pool in (keys, values))
    return finish(attend_part(q, k, v, mask.flatten()))
