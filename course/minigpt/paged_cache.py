"""Lesson 10: Pages that conversations share.

Built from solutions/10-paged-cache/paged_cache.py by `make build`: change it there.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from course.given.pages import (
    LARGEST,
    check_block_numbers,
    check_cache_limit,
    check_pool_sizes,
    check_token_list,
)
from course.minigpt.roofline import phase_cost
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_block
from course.model.config import GPTConfig


class BlockAllocator:
    """The numbers 0 … n_blocks - 1, each free or with a count of owners.

    Raises:
        ValueError: a number that is no block.
        Whatever is refused changes nothing.
    """

    def __init__(self, n_blocks: int) -> None:
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        self.free = list(range(n_blocks))
        self.counts = [0] * n_blocks

    def __len__(self) -> int:
        """Free blocks."""
        return len(self.free)

    def owners(self, block: int) -> int:
        """Owners of a block; 0 if it is free."""
        check_block_numbers([block], self.n_blocks)
        return self.counts[block]

    def allocate(self, n: int = 1) -> list[int]:
        """Hand out n free blocks, 0 or more, one owner each, in a list that the caller may change.

        Raises:
            CacheFull: fewer are free.
        """
        check_between("n", n, 0, LARGEST)
        if n > len(self.free):
            raise CacheFull(f"{n} blocks are needed, {len(self.free)} of {self.n_blocks} are free")
        blocks = [self.free.pop() for _ in range(n)]
        for block in blocks:
            self.counts[block] = 1
        return blocks

    def share(self, blocks: list[int]) -> None:
        """Count one owner more for each block of the list, which stays as it is.

        Raises:
            ValueError: a block of them is free.
        """
        check_block_numbers(blocks, self.n_blocks)
        for block in blocks:
            if self.counts[block] == 0:
                raise ValueError(f"block {block} is free and cannot be shared")
        for block in blocks:
            self.counts[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Count one owner fewer for each block of the list, which stays as it is; those without any
        are free.

        Raises:
            ValueError: a block of them is free, or stands in the list more often than it has owners.
        """
        check_block_numbers(blocks, self.n_blocks)
        for block, times in Counter(blocks).items():
            if self.counts[block] < times:
                raise ValueError(f"block {block} has {self.counts[block]} owners, not {times}")
        for block in blocks:
            self.counts[block] -= 1
            if self.counts[block] == 0:
                self.free.append(block)


class BlockPool:
    """Storage for the keys and values of many texts, in blocks of `block_size` tokens.

    Attributes:
        keys, values: (L, G, n_blocks, block_size, D) each; a block has its place in every layer.
        allocator: says which blocks are free.
    """

    def __init__(
        self,
        config: GPTConfig,
        n_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        check_pool_sizes(config, n_blocks, block_size, dtype)
        self.config, self.n_blocks, self.block_size = config, n_blocks, block_size
        self.dtype, self.device = dtype, device
        shape = (config.n_layers, config.n_kv_heads, n_blocks, block_size, config.head_dim)
        self.keys, self.values = torch.zeros((2, *shape), dtype=dtype, device=device)
        self.allocator = BlockAllocator(n_blocks)


class PagedKVCache:
    """Keys and values of one text (B = 1) in blocks of a pool that many texts share.

    Used like any cache: `append` for every layer, then `advance`.

    Args:
        pool: its `config`, `dtype`, `device`, `n_blocks`, `block_size`, `keys`, `values`, `allocator`.
        max_len: tokens it can hold, at most config.max_seq_len, which is taken if it is left out. The
            pool may have room for fewer.

    Attributes:
        table: numbers of its blocks in the order of the text.

    Raises:
        ValueError: sizes that cannot be used; keys or values of another shape or dtype.
        CacheFull: from `append`: max_len is reached, or the pool has too few free blocks.
        Whatever is refused changes nothing.
    """

    def __init__(self, pool: BlockPool, max_len: int | None = None) -> None:
        self.max_len = check_cache_limit(pool.config, max_len)
        self.pool = pool
        self.table: list[int] = []
        self.length = 0

    def __len__(self) -> int:
        """Tokens held."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy k and v (1, G, T, D) behind what is held; return all so far, (1, G, S, D) each, in memory
        of their own. Appended again before `advance`, the new ones replace the old."""
        check_block(self.pool.config, 1, self.pool.dtype, layer, k, v)
        pool, end = self.pool, self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull(f"{self.length} of {self.max_len} places are taken, {end} are needed")
        self._own_blocks(end)
        table = torch.tensor(self.table, device=pool.device)
        tokens = torch.arange(self.length, end, device=pool.device)
        blocks, places = table[tokens // pool.block_size], tokens % pool.block_size
        rows = []
        for storage, new in ((pool.keys[layer], k[0]), (pool.values[layer], v[0])):
            storage[:, blocks, places] = new  # (G, T, D)
            gathered = storage.index_select(1, table)  # (G, n, block_size, D)
            rows.append(gathered.flatten(1, 2)[:, :end].unsqueeze(0))  # (1, G, S, D)
        return rows[0], rows[1]

    def _own_blocks(self, end: int) -> None:
        """Take the blocks that are missing for `end` tokens; copy those that are written and shared."""
        pool, first = self.pool, self.length // self.pool.block_size
        missing = max(0, -(-end // pool.block_size) - len(self.table))
        shared = [
            i for i in range(first, len(self.table)) if pool.allocator.owners(self.table[i]) > 1
        ]
        new = pool.allocator.allocate(missing + len(shared))  # or CacheFull, and nothing changed
        for i in shared:
            old, copy = self.table[i], new.pop()
            pool.keys[:, :, copy] = pool.keys[:, :, old]  # in all layers
            pool.values[:, :, copy] = pool.values[:, :, old]
            pool.allocator.release([old])
            self.table[i] = copy
        self.table += new

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        check_between("n", n, 0, self.max_len - len(self))
        self.length += n

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, and the blocks that they lie in; release the others."""
        check_between("n", n, 0, len(self))
        kept = -(-n // self.pool.block_size)
        self.pool.allocator.release(self.table[kept:])
        self.table, self.length = self.table[:kept], n

    def reset(self) -> None:
        """Forget every token, and release all blocks."""
        self.truncate(0)

    def nbytes(self) -> int:
        """Bytes of the blocks in the table, keys and values of all layers, shared ones included."""
        pool = self.pool
        return len(self.table) * (pool.keys.nbytes + pool.values.nbytes) // pool.n_blocks

    def fork(self) -> "PagedKVCache":
        """A second cache with the same tokens, pool and max_len: it shares all blocks and takes no new
        one. Called between forward passes."""
        twin = PagedKVCache(self.pool, self.max_len)
        self.pool.allocator.share(self.table)
        twin.table, twin.length = list(self.table), self.length
        return twin

    def adopt(self, blocks: list[int]) -> None:
        """Begin with the tokens of these blocks, all full, of the same pool: they get one owner more, and
        blocks of an append that was never advanced are released.

        Raises:
            ValueError: tokens are held already, there are more than max_len, or a block is free.
        """
        check_between("tokens held", len(self), 0, 0)
        check_between("tokens adopted", len(blocks) * self.pool.block_size, 0, self.max_len)
        self.pool.allocator.share(blocks)
        self.pool.allocator.release(self.table)  # of an append that was never advanced
        self.table = list(blocks)
        self.length = len(blocks) * self.pool.block_size


def block_keys(tokens: list[int], block_size: int) -> list[bytes]:
    """A key for each full block of a text, that tells the block's tokens and all before them.

    The same tokens always get the same keys, for as long as Python runs. A key of 64 tokens or more has
    16 bytes at least.

    Args:
        tokens: whole numbers from 0 on; may be empty.
        block_size: tokens of a block, at least 1.
    """
    check_token_list(tokens, block_size)
    keys, key = [], b""
    for end in range(block_size, len(tokens) + 1, block_size):
        block = tokens[end - block_size : end]
        key = hashlib.sha256(key + repr(block).encode()).digest()
        keys.append(key)
    return keys


def reusable_blocks(tokens: list[int], block_size: int, known: Mapping[bytes, int]) -> list[int]:
    """Numbers of the known blocks with which a text begins, as many as there are, in its order. At
    least one token is left to be fed.

    Args:
        tokens: of the text, at least one.
        block_size: tokens of a block, at least 1.
        known: block numbers by the keys of `block_keys`. Nothing is added.
    """
    check_token_list(tokens, block_size, at_least=1)
    found = []
    for key in block_keys(tokens[:-1], block_size):  # the last token is always fed
        if key not in known:
            break
        found.append(known[key])
    return found


def prefill_saved(config: GPTConfig, n_prompt: int, n_cached: int) -> float:
    """Share of the FLOPs of a prefill that cached tokens save, 0 … 1, as `phase_cost` counts.

    Args:
        config: sizes of the model.
        n_prompt: tokens of the prompt, at least 1.
        n_cached: first tokens of it whose keys and values are cached, 0 … n_prompt - 1.
    """
    check_between("n_prompt", n_prompt, 1, LARGEST)
    check_between("n_cached", n_cached, 0, n_prompt - 1)
    rest = phase_cost(config, n_prompt - n_cached, n_cached)
    return 1 - rest.flops / phase_cost(config, n_prompt, 0).flops
