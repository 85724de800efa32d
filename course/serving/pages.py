"""Replace `forward_cached` where conversations share a pool of pages: one token of each in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

import torch
from torch import Tensor

from course.fast.graphs import record
from course.fast.layer import FastWeights, after_attention, heads_of
from course.given.parts import Part
from course.minigpt.paged_cache import BlockPool, PagedKVCache
from course.minigpt.split_read import attend_part, finish, merge

GRAPHS = 32
"""How many CUDA graphs are kept; the least recently used one goes first."""
WORTH_SHARING = 1 << 20
"""Bytes per layer from which on a CPU reads shared pages once. Attention in two parts and their merge are
more operations than attention in one, and take as long as copying 1 to 1.5 MB (d_model 128 and 768)."""


class DecodeTogether:
    """Replace one `forward_cached` per conversation by one pass that feeds one token to each of them.

    Use it to decode conversations of any lengths whose caches are pages of one pool, as the engine does;
    prompts go through `forward_cached`. The matrices see the conversations as one batch; each attends to
    its pages. Pages that all of them share are read once, where that saves enough (`WORTH_SHARING`).

    On a GPU, a pass is recorded in a CUDA graph for each combination of sizes (`course.fast.graphs`).
    Where that cannot be done, since a student's function waits for the device, it runs as it is.

    Args:
        weights: the weights of the model whose keys and values the pool holds.
        pool: the pool of all caches.
        multiple: above 1, sizes are rounded so that few combinations occur: rows up to a power of two, by
            repeating the last one; of pages, those that all share down, and the others up, to a multiple.
    """

    def __init__(self, weights: FastWeights, pool: BlockPool, multiple: int = 1) -> None:
        self.weights, self.pool, self.multiple = weights, pool, multiple
        self._graphs: dict[Sizes, tuple[Tensor, Callable[[], Tensor]]] = {}
        if pool.keys.is_cuda:
            self._run, self._least_saved, self._buffers = self._replay, 0, None
            self._memory = torch.cuda.graph_pool_handle()
        else:
            block_bytes = 2 * pool.keys[0, :, 0].nbytes  # keys and values, in one layer
            self._run, self._least_saved = self.forward, math.ceil(WORTH_SHARING / block_bytes)
            self._buffers = pool.keys.new_empty(0), pool.keys.new_empty(0)

    def __call__(self, caches: Sequence[PagedKVCache], tokens: Sequence[int]) -> Tensor:
        """Feed the newest token of each conversation; return logits (n, V).

        Args:
            caches: a cache for each conversation, with a free block in the pool for each that needs one.
            tokens: one for each conversation.

        Raises:
            CacheFull: the pool has no block for a conversation that needs one.
        """
        for cache in caches:
            self._make_room(cache)
        sizes, numbers = plan(caches, tokens, self.multiple, self._least_saved)
        inputs = torch.tensor(numbers, device=self.weights.embed.device)
        logits = self._run(sizes, inputs)[: len(caches)]
        for cache in caches:
            cache.advance(1)
        return logits

    def _make_room(self, cache: PagedKVCache) -> None:
        """Take a block from the pool, which has its place in every layer, if the last one is full."""
        if len(cache) % self.pool.block_size == 0:
            config = self.pool.config
            placeholder = self.pool.keys.new_zeros(1, config.n_kv_heads, 1, config.head_dim)
            cache.append(0, placeholder, placeholder)

    def forward(self, sizes: Sizes, inputs: Tensor) -> Tensor:
        """Run a pass on planned numbers; return logits (rows, V). The operations, their shapes and the
        addresses of their tensors do not depend on what the numbers are."""
        pages = Pages(self.pool, sizes, inputs, self._buffers)
        x, cos_sin = self.weights.embedded(pages.tokens, pages.positions)
        for i, layer in enumerate(self.weights.layers):
            q, k, v = heads_of(x, layer, cos_sin)  # (n, H, 1, D), (n, G, 1, D) twice
            pages.write(i, k, v)
            part = attend_part(q, *pages.read_separate(i), pages.mask)
            if sizes.shared:  # attends as one conversation with n queries, (1, H, n, D)
                shared = attend_part(q.transpose(0, 2), *pages.read_shared(i))
                part = merge(part, Part(*(x.transpose(0, 2) for x in shared)))
            x = after_attention(x, finish(part), layer)
        return self.weights.logits(x[:, 0])

    def _replay(self, sizes: Sizes, inputs: Tensor) -> Tensor:
        """Run a pass as `forward` does, from the graph that was recorded for its sizes."""
        if sizes not in self._graphs:
            while len(self._graphs) >= GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            try:
                with torch.cuda.device(inputs.device):
                    replay = record(lambda: self.forward(sizes, inputs), self._memory)
            except RuntimeError:  # something in it cannot be recorded
                self._run = self.forward
                return self.forward(sizes, inputs)
            self._graphs[sizes] = inputs, replay
        fixed, replay = self._graphs[sizes] = self._graphs.pop(sizes)
        fixed.copy_(inputs)
        return replay().clone()  # the next pass writes to the same memory


class Sizes(NamedTuple):
    """How many rows a pass has, how many blocks all of them share, and how many more each one reads."""

    rows: int
    shared: int
    separate: int


def plan(
    caches: Sequence[PagedKVCache], tokens: Sequence[int], multiple: int, least_saved: int
) -> tuple[Sizes, list[int]]:
    """Plan a pass over conversations that get one more token each.

    Args:
        caches: one for each conversation, with a block for the new token; `len` does not count it yet.
        tokens: the new tokens.
        multiple: see `DecodeTogether`.
        least_saved: shared blocks are read once where that saves reading this many blocks.

    Returns:
        The sizes, and the numbers that `Pages` reads: tokens, positions, separate blocks, shared blocks.
    """
    rows = [(cache.table, len(cache), token) for cache, token in zip(caches, tokens, strict=True)]
    if multiple > 1:
        rows += [rows[-1]] * ((1 << (len(rows) - 1).bit_length()) - len(rows))
    tables, positions, fed = zip(*rows, strict=True)
    same = (len(set(blocks)) == 1 for blocks in zip(*tables, strict=False))
    shared = len(list(takewhile(bool, same))) if len(caches) > 1 else 0
    shared -= shared % multiple
    if shared * (len(rows) - 1) < least_saved:
        shared = 0
    longest = max(map(len, tables)) - shared
    longest += -longest % multiple
    separate = [[*table[shared:], *[0] * (shared + longest - len(table))] for table in tables]
    numbers = [*fed, *positions, *chain.from_iterable(separate), *tables[0][:shared]]
    return Sizes(len(rows), shared, longest), numbers


class Pages:
    """The pages of a pool that one pass reads and writes.

    Args:
        inputs: the numbers of `plan`, int64.
        buffers: where separate keys and values of one layer after the other are copied to; None for new
            tensors, which on a CPU cost a page fault for each 4 KiB.

    Attributes:
        tokens, positions: (n, 1) each.
        mask: (n, 1, 1, M · size), True for each row of the separate blocks that holds a token of its
            conversation, the new one included.
    """

    def __init__(
        self, pool: BlockPool, sizes: Sizes, inputs: Tensor, buffers: tuple[Tensor, Tensor] | None
    ) -> None:
        (n, n_shared, longest), size = sizes, pool.block_size
        tokens, positions, table, self._shared = inputs.split([n, n, n * longest, n_shared])
        self.pool, self.tokens, self.positions = pool, tokens[:, None], positions[:, None]
        self._buffers = buffers or (None, None)
        table = table.view(n, longest)
        heads = torch.arange(pool.config.n_kv_heads, device=inputs.device) * pool.n_blocks  # (G,)
        pages = table.unsqueeze(1) + heads[:, None]  # (n, G, M)
        self._separate, self._shape = pages.flatten(), (*pages.shape[:2], -1, pool.config.head_dim)
        places = self.positions - n_shared * size  # of the new tokens among separate rows, (n, 1)
        self.mask = torch.arange(longest * size, device=inputs.device) <= places[:, :, None, None]
        slots = table.gather(1, places // size) * size + places % size + heads * size  # (n, G)
        self._slot_mapping = slots.flatten()

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Write the new tokens' keys and values, (n, G, 1, D), into their slots of the pool."""
        for storage, new in ((self.pool.keys, k), (self.pool.values, v)):
            store = storage[layer].view(-1, new.shape[-1])  # (G · n_blocks · size, D)
            store.index_copy_(0, self._slot_mapping, new.reshape(len(self._slot_mapping), -1))

    def read_separate(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the separate pages, (n, G, M · size, D) each, until the next
        layer is read."""
        keys, values = self._buffers
        return self._read(self.pool.keys[layer], keys), self._read(self.pool.values[layer], values)

    def _read(self, store: Tensor, buffer: Tensor | None) -> Tensor:
        """Copy pages out of (G, n_blocks, size, D), block by block: `index_select` copies whole rows."""
        rows = store.view(-1, store.shape[2] * store.shape[3])  # (G · n_blocks, size · D)
        out = None if buffer is None else buffer.resize_(0)  # which keeps its memory
        return torch.index_select(rows, 0, self._separate, out=out).view(self._shape)

    def read_shared(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the pages that all share, (1, G, P, D) each."""
        stores = (self.pool.keys[layer], self.pool.values[layer])
        keys, values = (store.index_select(1, self._shared).flatten(1, 2) for store in stores)
        return keys.unsqueeze(0), values.unsqueeze(0)
