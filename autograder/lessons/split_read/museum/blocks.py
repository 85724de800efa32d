"""Known wrong answers to lesson 09: blocks that are read where they lie."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.minigpt.split_read import attend_part, finish, merge

bug = MUSEUM.section("attend_blocks", check="blocks_where_they_lie")


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
