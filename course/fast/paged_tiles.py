"""Copy blocks of a paged cache into a small scratch, a few hundred tokens at a time.

    scratch = make_scratch(keys)
    for k, v in tiles(keys, values, table, length, scratch):
        …  # (1, G, up to 512, D) each; the next tile overwrites them

A loop of PyTorch pays some microseconds for each operation, so reading blocks of 16 tokens one by one
costs more than the bytes do. Gathering all of them first writes the whole cache once more, into fresh
memory. A tile lies between: it is copied, but into memory that stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor

from course.given.parts import Part
from course.model.bounds import check_between

TOKENS = 512
"""Tokens of a tile: at D = 128 and G = 8, 4 MiB of float32 for its keys and values."""


def make_scratch(keys: Tensor, tokens: int = TOKENS) -> Tensor:
    """Allocate room for the blocks of a tile, three times: as they lie in the pool, keys by head, and
    values by head.

    Args:
        keys: of the pool, (n_blocks, G, size, D).
        tokens: of a tile; at least one block is allocated.
    """
    _, G, size, D = keys.shape
    return keys.new_empty(3, max(1, tokens // size), G, size, D)


def tiles(
    keys: Tensor, values: Tensor, table: Sequence[int], length: int, scratch: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield keys and values (1, G, n, D) of some blocks at a time, in the order of the table.

    Args:
        keys, values: (n_blocks, G, size, D).
        table: numbers of the blocks that hold the tokens, in their order.
        length: tokens; the last block need not be full.
        scratch: from `make_scratch`; a yielded pair lies in it until the next one is taken.

    Raises:
        ValueError: the table is too short for so many tokens.
    """
    _, G, size, D = keys.shape
    check_between("length", length, 0, len(table) * size)
    numbers, at_once = torch.as_tensor(table), scratch.shape[1]
    for first in range(0, -(-length // size), at_once):
        chosen = numbers[first : first + at_once]
        n, held = len(chosen), min(length - first * size, len(chosen) * size)
        pair = []
        for pool, room in zip((keys, values), scratch[1:], strict=True):
            picked = torch.index_select(pool, 0, chosen, out=scratch[0][:n])  # (n, G, size, D)
            by_head = room.view(-1)[: n * G * size * D].view(G, n, size, D)
            by_head.copy_(picked.transpose(0, 1))
            pair.append(by_head.view(1, G, n * size, D)[:, :, :held])
        yield pair[0], pair[1]


def attend_tiles(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Sequence[int],
    length: int,
    scratch: Tensor,
    attend_part: Callable[[Tensor, Tensor, Tensor], Part],
    merge: Callable[[Part, Part], Part],
    finish: Callable[[Part], Tensor],
) -> Tensor:
    """Attend to the tokens of one conversation, tile by tile, (1, H, T, D).

    Args:
        q: (1, H, T, D); every query sees all tokens.
        keys, values, table, length, scratch: as of `tiles`.
        attend_part, merge, finish: as built in lesson 09.
    """
    pairs = tiles(keys, values, table, length, scratch)
    return finish(reduce(merge, (attend_part(q, *pair) for pair in pairs)))
