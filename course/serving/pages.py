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
    """Replace one `forward_cached` per conversation by one pass that feeds one token to each of them.

    Use it to decode conversations of any lengths whose caches are pages of one pool, as the engine does;
    prompts go through `forward_cached`. The matrices see the conversations as one batch; each attends to
    its pages, and pages that all of them share are read once.

    Args:
        weights: the weights of the model whose keys and values the caches hold.
        caches: a cache for each conversation, all in one pool with a free block for each that needs one.
        tokens: the newest token of each conversation.

    Returns:
        Logits (n, V).
    """
    pool = caches[0].pool
    positions = torch.tensor([[len(cache)] for cache in caches], device=pool.device)  # (n, 1)
    new = torch.tensor(tokens, device=pool.device).unsqueeze(1)  # (n, 1)
    x, cos_sin = weights.embedded(new, positions)
    pages = None
    for i, layer in enumerate(weights.layers):
        q, k, v = heads_of(x, layer, cos_sin)  # (n, H, 1, D), (n, G, 1, D) twice
        pages = pages or Pages(pool, caches, k, v)
        pages.write(i, k, v)
        part = attend_part(q, *pages.read_separate(i), pages.mask)
        if pages.n_shared:  # attends as one conversation with n queries, (1, H, n, D)
            shared = attend_part(q.transpose(0, 2), *pages.read_shared(i))
            part = merge(part, Part(*(x.transpose(0, 2) for x in shared)))
        x = after_attention(x, finish(part), layer)
    for cache in caches:
        cache.advance(1)
    return weights.logits(x[:, 0])


class Pages:
    """The pages of n conversations that get one more token each. Where the last block is full, a new
    one is taken from the pool.

    Args:
        pool: the pool of the caches.
        caches: a cache for each conversation; `len` does not count the new token yet.
        k, v: the new tokens' keys and values in the first layer, (n, G, 1, D).

    Attributes:
        n_shared: how many blocks at the beginning all conversations have in common.
        mask: (n, 1, 1, M · size), True for each row of the other blocks that holds a token.
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
        separate = [table[self.n_shared :] for table in tables]
        longest = max(map(len, separate))
        padded = [table + [0] * (longest - len(table)) for table in separate]
        heads = torch.arange(pool.config.n_kv_heads, device=device) * pool.n_blocks  # (G,)
        pages = torch.tensor(padded, device=device).unsqueeze(1) + heads[:, None]  # (n, G, M)
        self._separate, self._shape = pages.flatten(), (*pages.shape[:2], -1, pool.config.head_dim)
        lengths = [len(cache) for cache in caches]
        ends = torch.tensor(lengths, device=device) + 1 - self.n_shared * size
        self.mask = torch.arange(longest * size, device=device) < ends[:, None, None, None]
        rows = [
            table[n // size] * size + n % size for table, n in zip(tables, lengths, strict=True)
        ]
        slots = torch.tensor(rows, device=device)[:, None] + heads * size  # (n, G)
        self._slot_mapping = slots.flatten()

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Write the new tokens' keys and values, (n, G, 1, D), into their slots of the pool."""
        for storage, new in ((self.pool.keys, k), (self.pool.values, v)):
            store = storage[layer].view(-1, new.shape[-1])  # (G · n_blocks · size, D)
            store.index_copy_(0, self._slot_mapping, new.reshape(len(self._slot_mapping), -1))

    def read_separate(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the separate pages, (n, G, M · size, D) each."""
        return self._read(self.pool.keys[layer]), self._read(self.pool.values[layer])

    def _read(self, store: Tensor) -> Tensor:
        """Copy pages out of (G, n_blocks, size, D), block by block: `index_select` copies whole rows."""
        rows = store.view(-1, store.shape[2] * store.shape[3])  # (G · n_blocks, size · D)
        return rows.index_select(0, self._separate).view(self._shape)

    def read_shared(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the pages that all share, (1, G, P, D) each."""
        stores = (self.pool.keys[layer], self.pool.values[layer])
        keys, values = (store.index_select(1, self._shared).flatten(1, 2) for store in stores)
        return keys.unsqueeze(0), values.unsqueeze(0)
