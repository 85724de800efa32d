"""Right answers to lesson 10 in other styles: every check must pass them."""

from __future__ import annotations

import hashlib
import heapq
from collections import deque

import numpy as np
import torch

from autograder.lessons.exhibits import Variant
from course.given.pages import LARGEST, check_block_numbers, check_cache_limit, check_token_list
from course.minigpt.paged_cache import PagedKVCache, block_keys
from course.minigpt.roofline import attention_flops, phase_cost
from course.model.bounds import check_between
from course.model.cache import CacheFull, check_block


class LowestFirst:
    """A heap of free numbers and a dict of counts."""

    def __init__(self, n_blocks):
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        self.heap, self.held = list(range(n_blocks)), {}

    def __len__(self):
        return len(self.heap)

    def owners(self, block):
        check_block_numbers([block], self.n_blocks)
        return self.held.get(block, 0)

    def allocate(self, n=1):
        check_between("n", n, 0, LARGEST)
        if len(self.heap) < n:
            raise CacheFull("too few free blocks")
        return [self._take() for _ in range(n)]

    def _take(self):
        block = heapq.heappop(self.heap)
        self.held[block] = 1
        return block

    def share(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        if not set(blocks) <= self.held.keys():
            raise ValueError("a free block cannot be shared")
        for block in blocks:
            self.held[block] += 1

    def release(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        left = dict(self.held)
        for block in blocks:
            if not left.get(block):
                raise ValueError(f"block {block} is free")
            left[block] -= 1
        for block in [block for block, n in left.items() if n == 0]:
            del left[block]
            heapq.heappush(self.heap, block)
        self.held = left


class OldestFirst:
    """A queue: what was freed first is handed out first."""

    def __init__(self, n_blocks):
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        self.queue = deque(range(n_blocks))
        self.counts = np.zeros(n_blocks, dtype=int)

    def __len__(self):
        return len(self.queue)

    def owners(self, block):
        check_block_numbers([block], self.n_blocks)
        return int(self.counts[block])

    def allocate(self, n=1):
        check_between("n", n, 0, LARGEST)
        if len(self.queue) < n:
            raise CacheFull("too few free blocks")
        blocks = [self.queue.popleft() for _ in range(n)]
        self.counts[blocks] = 1
        return blocks

    def share(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        if any(self.counts[block] == 0 for block in blocks):
            raise ValueError("a free block cannot be shared")
        np.add.at(self.counts, np.array(blocks, dtype=int), 1)

    def release(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        left = self.counts.copy()
        np.subtract.at(left, np.array(blocks, dtype=int), 1)
        if (left < 0).any():
            raise ValueError("more is released than is owned")
        self.queue.extend(block for block in set(blocks) if left[block] == 0)
        self.counts = left


class LookAtCounts:
    """No list of free blocks: counts alone, searched each time."""

    def __init__(self, n_blocks):
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        self.counts = torch.zeros(n_blocks, dtype=torch.int64)

    def __len__(self):
        return int((self.counts == 0).sum())

    def owners(self, block):
        check_block_numbers([block], self.n_blocks)
        return int(self.counts[block])

    def allocate(self, n=1):
        check_between("n", n, 0, LARGEST)
        blocks = torch.nonzero(self.counts == 0).flatten()[:n].tolist()
        if len(blocks) < n:
            raise CacheFull("too few free blocks")
        self.counts[blocks] = 1
        return blocks

    def share(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        wanted = torch.bincount(torch.tensor(blocks, dtype=torch.int64), minlength=self.n_blocks)
        if ((wanted > 0) & (self.counts == 0)).any():
            raise ValueError("a free block cannot be shared")
        self.counts += wanted

    def release(self, blocks):
        check_block_numbers(blocks, self.n_blocks)
        gone = torch.bincount(torch.tensor(blocks, dtype=torch.int64), minlength=self.n_blocks)
        if (gone > self.counts).any():
            raise ValueError("more is released than is owned")
        self.counts -= gone


class ListOfOwners:
    """Undo in the place of looking first."""

    def __init__(self, n_blocks):
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        self.counts = [0 for _ in range(n_blocks)]

    def __len__(self):
        return self.counts.count(0)

    def owners(self, block):
        check_block_numbers([block], self.n_blocks)
        return self.counts[block]

    def allocate(self, n=1):
        check_between("n", n, 0, LARGEST)
        kept, blocks = list(self.counts), []
        for _ in range(n):
            if 0 not in self.counts:
                self.counts = kept
                raise CacheFull("too few free blocks")
            block = self.n_blocks - 1 - self.counts[::-1].index(0)
            self.counts[block] = 1
            blocks.append(block)
        return blocks

    def share(self, blocks):
        self._change(blocks, 1)

    def release(self, blocks):
        self._change(blocks, -1)

    def _change(self, blocks, by):
        check_block_numbers(blocks, self.n_blocks)
        kept = list(self.counts)
        for block in blocks:
            if self.counts[block] == 0:
                self.counts = kept
                raise ValueError(f"block {block} is free")
            self.counts[block] += by


class TokenByToken(PagedKVCache):
    """One token after the other, each into its place."""

    def append(self, layer, k, v):
        check_block(self.pool.config, 1, self.pool.dtype, layer, k, v)
        pool, size, T = self.pool, self.pool.block_size, k.shape[2]
        end = len(self) + T
        if end > self.max_len:
            raise CacheFull("max_len is reached")
        needed = (end + size - 1) // size
        inside = len(self) % size != 0
        place = len(self) // size
        copy = inside and pool.allocator.owners(self.table[place]) > 1
        fresh = pool.allocator.allocate(max(needed - len(self.table), 0) + int(copy))
        if copy:
            old, own = self.table[place], fresh.pop(0)
            for storage in (pool.keys, pool.values):
                storage[:, :, own] = storage[:, :, old].clone()
            self.table[place] = own
            pool.allocator.release([old])
        self.table.extend(fresh)
        for t in range(T):
            block, offset = self.table[(len(self) + t) // size], (len(self) + t) % size
            pool.keys[layer, :, block, offset] = k[0, :, t]
            pool.values[layer, :, block, offset] = v[0, :, t]
        where = [(self.table[i // size], i % size) for i in range(end)]
        rows = (
            torch.stack([storage[layer, :, block, offset] for block, offset in where], dim=1)
            for storage in (pool.keys, pool.values)
        )
        keys, values = rows
        return keys[None], values[None]

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        while (len(self.table) - 1) * self.pool.block_size >= n and self.table:
            self.pool.allocator.release([self.table.pop()])
        self.length = n

    def nbytes(self):
        c, pool = self.pool.config, self.pool
        number = pool.keys.element_size()
        return (
            2 * c.n_layers * c.n_kv_heads * len(self.table) * pool.block_size * c.head_dim * number
        )


class FlatPlaces(PagedKVCache):
    """The pool of a layer as one long row of places; a list of places for the text."""

    def append(self, layer, k, v):
        check_block(self.pool.config, 1, self.pool.dtype, layer, k, v)
        pool, size = self.pool, self.pool.block_size
        start, end = len(self), len(self) + k.shape[2]
        if self.max_len < end:
            raise CacheFull("max_len is reached")
        self._prepare(start, end)
        blocks = torch.tensor(self.table)
        places = (blocks[:, None] * size + torch.arange(size)).flatten()[:end]
        out = []
        for storage, new in ((pool.keys, k), (pool.values, v)):
            flat = storage[layer].flatten(1, 2)  # (G, n_blocks · size, D), a view
            flat.index_copy_(1, places[start:], new[0].contiguous())
            out.append(flat[:, places].unsqueeze(0))
        return tuple(out)

    def _prepare(self, start, end):
        pool, size = self.pool, self.pool.block_size
        owners = pool.allocator.owners
        written = range(start // size, min(len(self.table), -(-end // size)))
        shared = [i for i in written if owners(self.table[i]) != 1]
        fresh = iter(
            pool.allocator.allocate(max(0, -(-end // size) - len(self.table)) + len(shared))
        )
        for i in shared:
            own = next(fresh)
            pool.keys.select(2, own).copy_(pool.keys.select(2, self.table[i]))
            pool.values.select(2, own).copy_(pool.values.select(2, self.table[i]))
            pool.allocator.release([self.table[i]])
            self.table[i] = own
        self.table.extend(fresh)

    def reset(self):
        blocks, self.table, self.length = self.table, [], 0
        self.pool.allocator.release(blocks)

    def fork(self):
        other = type(self)(self.pool, self.max_len)
        other.table = self.table[:]
        other.length = len(self)
        other.pool.allocator.share(other.table)
        return other


class WithNumpy:
    """Written anew, with a NumPy table and einops-free reshapes."""

    def __init__(self, pool, max_len=None):
        self.max_len = check_cache_limit(pool.config, max_len)
        self.pool, self.length = pool, 0
        self.blocks = np.zeros(0, dtype=np.int64)

    @property
    def table(self):
        return self.blocks.tolist()

    def __len__(self):
        return self.length

    def append(self, layer, k, v):
        check_block(self.pool.config, 1, self.pool.dtype, layer, k, v)
        size, end = self.pool.block_size, self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull("max_len is reached")
        allocator, last = self.pool.allocator, self.length // size
        more = max(0, -(-end // size) - len(self.blocks))
        copied = [n for n in range(last, len(self.blocks)) if allocator.owners(self.table[n]) > 1]
        if more + len(copied) > len(allocator):
            raise CacheFull("no block is free")
        for n in copied:
            old, (new,) = int(self.blocks[n]), allocator.allocate()
            for storage in (self.pool.keys, self.pool.values):
                storage.index_copy_(2, torch.tensor([new]), storage[:, :, [old]])
            allocator.release([old])
            self.blocks[n] = new
        self.blocks = np.concatenate(
            [self.blocks, np.array(allocator.allocate(more), dtype=np.int64)]
        )
        out = []
        for storage, new in ((self.pool.keys[layer], k), (self.pool.values[layer], v)):
            gathered = storage[:, self.table]  # (G, n, size, D), a copy
            G, n, _, D = gathered.shape
            gathered = gathered.reshape(G, n * size, D)
            gathered[:, self.length : end] = new[0]
            storage[:, self.table] = gathered.reshape(G, n, size, D)
            out.append(gathered[None, :, :end])
        return out[0], out[1]

    def advance(self, n):
        check_between("n", n, 0, self.max_len - len(self))
        self.length += n

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        kept = (n + self.pool.block_size - 1) // self.pool.block_size
        self.pool.allocator.release(self.table[kept:])
        self.blocks, self.length = self.blocks[:kept], n

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        one = self.pool.keys[:, :, 0].nbytes + self.pool.values[:, :, 0].nbytes
        return one * len(self.blocks)

    def fork(self):
        other = WithNumpy(self.pool, self.max_len)
        other.blocks, other.length = self.blocks.copy(), self.length
        self.pool.allocator.share(self.table)
        return other

    def adopt(self, blocks):
        check_between("tokens held", len(self), 0, 0)
        check_between("tokens adopted", len(blocks) * self.pool.block_size, 0, self.max_len)
        self.pool.allocator.share(list(blocks))
        self.pool.allocator.release(self.table)
        self.blocks = np.array(blocks, dtype=np.int64)
        self.length = len(blocks) * self.pool.block_size


class EveryBlockAlone(PagedKVCache):
    """torch.cat of slices, block by block."""

    def append(self, layer, k, v):
        check_block(self.pool.config, 1, self.pool.dtype, layer, k, v)
        end = self.length + k.shape[2]
        if end > self.max_len:
            raise CacheFull("max_len is reached")
        self._take(end)
        size, done = self.pool.block_size, 0
        while done < k.shape[2]:
            block, first = divmod(self.length + done, size)
            n = min(size - first, k.shape[2] - done)
            place = (layer, slice(None), self.table[block], slice(first, first + n))
            self.pool.keys[place] = k[0, :, done : done + n]
            self.pool.values[place] = v[0, :, done : done + n]
            done += n
        return self._read(self.pool.keys[layer], end), self._read(self.pool.values[layer], end)

    def _read(self, storage, end):
        blocks = [storage[:, block] for block in self.table]  # (G, size, D) each
        return torch.cat(blocks, dim=1)[None, :, :end].clone()

    def _take(self, end):
        allocator, first = self.pool.allocator, self.length // self.pool.block_size
        missing = range(len(self.table) * self.pool.block_size, end, self.pool.block_size)
        copies = {i: b for i, b in enumerate(self.table) if i >= first and allocator.owners(b) > 1}
        fresh = allocator.allocate(len(missing) + len(copies))
        for i, old in copies.items():
            self.table[i] = fresh.pop()
            self.pool.keys[:, :, self.table[i]] = self.pool.keys[:, :, old]
            self.pool.values[:, :, self.table[i]] = self.pool.values[:, :, old]
        allocator.release(list(copies.values()))
        self.table += fresh


def whole_beginnings(tokens, block_size):
    """No hash: the beginning itself, as text."""
    check_token_list(tokens, block_size)
    n = len(tokens) // block_size
    return [",".join(map(str, tokens[: i * block_size])).encode() for i in range(1, n + 1)]


def one_running_hash(tokens, block_size):
    """A hash object goes on through the text."""
    check_token_list(tokens, block_size)
    past, keys = hashlib.blake2b(digest_size=16), []
    for i, token in enumerate(tokens):
        past.update(token.to_bytes(8, "little"))
        if (i + 1) % block_size == 0:
            keys.append(past.digest())
    return keys


def hashed_arrays(tokens, block_size):
    """NumPy gives the bytes of all tokens at once."""
    check_token_list(tokens, block_size)
    full = len(tokens) // block_size
    array = np.array(tokens[: full * block_size], dtype=np.int64)
    return [hashlib.md5(array[: i * block_size].tobytes()).digest() for i in range(1, full + 1)]


def chained_by_recursion(tokens, block_size):
    """The keys of all but the last block, and one more."""
    check_token_list(tokens, block_size)
    full = len(tokens) // block_size * block_size
    if full == 0:
        return []
    before = chained_by_recursion(tokens[: full - block_size], block_size)
    past = before[-1].hex() if before else "start"
    text = f"{past}|{' '.join(map(str, tokens[full - block_size : full]))}"
    return [*before, hashlib.sha512(text.encode()).digest()]


def reuse_by_count(tokens, block_size, known):
    """Count how many, then look them up."""
    check_token_list(tokens, block_size, at_least=1)
    keys = block_keys(tokens, block_size)[: (len(tokens) - 1) // block_size]
    n = next((i for i, key in enumerate(keys) if key not in known), len(keys))
    return [known[key] for key in keys[:n]]


def reuse_by_while(tokens, block_size, known):
    check_token_list(tokens, block_size, at_least=1)
    keys, found = block_keys(tokens, block_size), []
    while len(found) < len(keys) and (block := known.get(keys[len(found)])) is not None:
        found.append(block)
    if len(found) * block_size == len(tokens):
        found.pop()
    return found


def reuse_by_recursion(tokens, block_size, known):
    check_token_list(tokens, block_size, at_least=1)

    def first(keys):
        return [known[keys[0]], *first(keys[1:])] if keys and keys[0] in known else []

    return first(block_keys(tokens[:-1], block_size))


def reuse_by_shortening(tokens, block_size, known):
    """The longest that could be, and shorter until all of it is known."""
    check_token_list(tokens, block_size, at_least=1)
    keys = block_keys(tokens[:-1], block_size)
    while not all(key in known for key in keys):
        keys.pop()
    return [known[key] for key in keys]


def saved_by_difference(config, n_prompt, n_cached):
    whole = phase_cost(config, n_prompt, 0).flops
    return (whole - phase_cost(config, n_prompt - n_cached, n_cached).flops) / whole


def saved_with_other_sizes(config, n_prompt, n_cached):
    """Batch and bytes change nothing."""
    costs = [
        phase_cost(config, n, n_prompt - n, 3, 4).flops for n in (n_prompt - n_cached, n_prompt)
    ]
    return 1.0 - costs[0] / costs[1]


def saved_in_parts(config, n_prompt, n_cached):
    """Matrices by the row, and attention."""
    fixed = 2 * config.d_model * config.vocab_size
    total = phase_cost(config, n_prompt, 0).flops
    matrices = (total - fixed - attention_flops(config, n_prompt, 0)) / n_prompt
    rest = fixed + (n_prompt - n_cached) * matrices
    return 1 - (rest + attention_flops(config, n_prompt - n_cached, n_cached)) / total


def saved_as_a_tensor(config, n_prompt, n_cached):
    pair = (phase_cost(config, n_prompt - n_cached, n_cached), phase_cost(config, n_prompt, 0))
    rest, whole = torch.tensor([cost.flops for cost in pair], dtype=torch.float64)
    return float(1 - rest / whole)


VARIANTS = [
    Variant("a heap", {"BlockAllocator": LowestFirst, "PagedKVCache": TokenByToken}),
    Variant("a queue", {"BlockAllocator": OldestFirst, "PagedKVCache": FlatPlaces}),
    Variant("counts alone", {"BlockAllocator": LookAtCounts, "PagedKVCache": WithNumpy}),
    Variant("undo", {"BlockAllocator": ListOfOwners, "PagedKVCache": EveryBlockAlone}),
    Variant("a heap alone", {"BlockAllocator": LowestFirst}),
    Variant("counts of tensors alone", {"BlockAllocator": LookAtCounts}),
    Variant(
        "whole beginnings",
        {
            "block_keys": whole_beginnings,
            "reusable_blocks": reuse_by_count,
            "prefill_saved": saved_by_difference,
        },
    ),
    Variant(
        "a running hash",
        {
            "block_keys": one_running_hash,
            "reusable_blocks": reuse_by_while,
            "prefill_saved": saved_with_other_sizes,
        },
    ),
    Variant(
        "arrays",
        {
            "block_keys": hashed_arrays,
            "reusable_blocks": reuse_by_recursion,
            "prefill_saved": saved_in_parts,
        },
    ),
    Variant(
        "recursion",
        {
            "block_keys": chained_by_recursion,
            "reusable_blocks": reuse_by_shortening,
            "prefill_saved": saved_as_a_tensor,
        },
    ),
]
