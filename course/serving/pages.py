"""Replace `forward_cached` where conversations share a pool of pages: one token of each in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor

from course.fast.layer import FastWeights, after_attention, heads_of
from course.given.parts import Part
from course.minigpt.paged_cache import BlockPool, PagedKVCache
from course.minigpt.split_read import attend_part, finish, merge


def decode_together(
    weights: FastWeights, caches: Sequence[PagedKVCache], tokens: Sequence[int]
) -> Tensor:
    """Replace one `forward_cached` a conversation by one pass that feeds one token to each of them.

    Use it to decode conversations of any lengths whose caches are pages of one pool, as the engine does;
    prompts go through `forward_cached`. The matrices see the conversations as one batch, each attends to
    its pages, and pages that all of them share are read once.

    Args:
        weights: of the model whose keys and values the caches hold.
        caches: of the n conversations, all in one pool that has a block for each that needs one.
        tokens: n of them.

    Returns:
        Logits (n, V).
    """
    pool = caches[0].pool
    positions = torch.tensor([[len(cache)] for cache in caches], device=pool.device)  # (n, 1)
    new = torch.tensor(tokens, device=pool.device).unsqueeze(1)  # (n, 1)
    x, turns = weights.embedded(new, positions)
    pages = None
    for number, layer in enumerate(weights.layers):
        q, k, v = heads_of(x, layer, turns)  # (n, H, 1, D), (n, G, 1, D) twice
        pages = pages or Pages(pool, caches, k, v)
        pages.write(number, k, v)
        part = attend_part(q, *pages.own(number), pages.mask)
        if pages.n_shared:
            part = merge(part, pages.across(attend_part(pages.turned(q), *pages.shared(number))))
        x = after_attention(x, finish(part), layer)
    for cache in caches:
        cache.advance(1)
    return weights.logits(x[:, 0])


class Pages:
    """The pages of conversations that get one token more each; blocks for it are taken where needed.

    Args:
        pool: of the caches.
        caches: of the n conversations; `len` does not count the new token yet.
        k, v: (n, G, 1, D), of the new tokens in the first layer.

    Attributes:
        n_shared: blocks at the beginning that all of them have in common.
        mask: (n, 1, 1, M · size), True for each row that holds a token of its own conversation.
    """

    def __init__(
        self, pool: BlockPool, caches: Sequence[PagedKVCache], k: Tensor, v: Tensor
    ) -> None:
        device, size = pool.device, pool.block_size
        for row, cache in enumerate(caches):
            if len(cache) % size == 0:  # takes a block, which has its place in every layer
                cache.append(0, k[row : row + 1], v[row : row + 1])
        self.pool, tables = pool, [cache.table for cache in caches]
        same = (len(set(blocks)) == 1 for blocks in zip(*tables, strict=False))
        self.n_shared = len(list(takewhile(bool, same))) if len(tables) > 1 else 0
        self._shared = torch.tensor(tables[0][: self.n_shared], device=device)
        own = [table[self.n_shared :] for table in tables]
        longest = max(map(len, own))
        padded = [table + [0] * (longest - len(table)) for table in own]
        heads = torch.arange(pool.config.n_kv_heads, device=device) * pool.n_blocks  # (G,)
        pages = torch.tensor(padded, device=device).unsqueeze(1) + heads[:, None]  # (n, G, M)
        self._own, self._shape = pages.flatten(), (*pages.shape[:2], -1, pool.config.head_dim)
        held = [len(cache) for cache in caches]
        ends = torch.tensor(held, device=device) + 1 - self.n_shared * size
        self.mask = torch.arange(longest * size, device=device) < ends[:, None, None, None]
        rows = [table[n // size] * size + n % size for table, n in zip(tables, held, strict=True)]
        places = torch.tensor(rows, device=device)[:, None] + heads * size  # (n, G)
        self._new = places.flatten()

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Put the new tokens' keys and values (n, G, 1, D) into their places."""
        for storage, new in ((self.pool.keys, k), (self.pool.values, v)):
            store = storage[layer].view(-1, new.shape[-1])  # (G · n_blocks · size, D)
            store.index_copy_(0, self._new, new.reshape(len(self._new), -1))

    def own(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of each conversation's own pages, (n, G, M · size, D) each."""
        return self._read(self.pool.keys[layer]), self._read(self.pool.values[layer])

    def _read(self, store: Tensor) -> Tensor:
        """Copy pages out of (G, n_blocks, size, D), block by block: `index_select` copies whole rows."""
        rows = store.view(-1, store.shape[2] * store.shape[3])  # (G · n_blocks, size · D)
        return rows.index_select(0, self._own).view(self._shape)

    def shared(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the pages that all share, (1, G, P, D) each."""
        stores = (self.pool.keys[layer], self.pool.values[layer])
        keys, values = (store.index_select(1, self._shared).flatten(1, 2) for store in stores)
        return keys.unsqueeze(0), values.unsqueeze(0)

    @staticmethod
    def turned(q: Tensor) -> Tensor:
        """The queries (n, H, 1, D) of all conversations as those of one, (1, H, n, D)."""
        return q.transpose(0, 2)

    @staticmethod
    def across(part: Part) -> Part:
        """What one conversation's n queries found, as a part of n conversations."""
        return Part(*(x.transpose(0, 2) for x in part))
