"""The cheapest wrong functions for the checks of lesson 10, see `autograder cheapest`."""

# ruff: noqa: RUF012 - each is handed in alone

from course.model.cache import CacheFull


class FreeList:
    def __init__(self, n_blocks):
        self.free, self.n_blocks = list(range(n_blocks)), n_blocks

    def __len__(self):
        return len(self.free)

    def owners(self, block):
        return int(block not in self.free)

    def allocate(self, n=1):
        if n > len(self.free):
            raise CacheFull
        return [self.free.pop() for _ in range(n)]

    def share(self, blocks):
        pass

    def release(self, blocks):
        self.free += blocks


class HandsOutNothing:
    def __init__(self, n_blocks):
        self.n_blocks = n_blocks

    def __len__(self):
        return self.n_blocks

    def allocate(self, n=1):
        return list(range(n))

    def release(self, blocks):
        pass


class TableAlone:
    def __init__(self, pool, max_len=None):
        self.pool, self.table, self.length, self.max_len = pool, [], 0, 64

    def __len__(self):
        return self.length

    def append(self, layer, k, v):
        needed = -(-(self.length + k.shape[2]) // self.pool.block_size)
        self.table += self.pool.allocator.allocate(max(0, needed - len(self.table)))
        return k, v

    def advance(self, n):
        self.length += n

    def truncate(self, n):
        kept = -(-n // self.pool.block_size)
        self.pool.allocator.release(self.table[kept:])
        self.table, self.length = self.table[:kept], n

    def reset(self):
        self.truncate(0)

    def nbytes(self):
        return 2 * len(self.table) * self.pool.keys[:, :, 0].nbytes


# %% blocks_are_given_once: numbers handed out in turn, and no counts
class BlockAllocator(FreeList):
    pass


# %% blocks_are_given_once: counts, and nothing is ever refused
class BlockAllocator:
    def __init__(self, n_blocks):
        self.counts = [0] * n_blocks

    def __len__(self):
        return self.counts.count(0)

    def owners(self, block):
        return self.counts[block]

    def allocate(self, n=1):
        blocks = [block for block, count in enumerate(self.counts) if count == 0][:n]
        self.share(blocks)
        return blocks

    def share(self, blocks):
        for block in blocks:
            self.counts[block] += 1

    def release(self, blocks):
        for block in blocks:
            self.counts[block] -= 1


# %% a_refusal_is_whole: whatever is shared or released is refused
class BlockAllocator(FreeList):
    def owners(self, block):
        return 0

    def share(self, blocks):
        raise ValueError

    release = share


# %% a_refusal_is_whole: no counts, and lists that name a free block or one twice are refused
class BlockAllocator(FreeList):
    def share(self, blocks):
        if {*blocks} & {*self.free}:
            raise ValueError

    def release(self, blocks):
        if {*blocks} & {*self.free} or len({*blocks}) < len(blocks):
            raise ValueError
        self.free += blocks


# %% every_split_through_any_table: lesson 03's cache, and a pool that hands out nothing
from course.minigpt.kv_cache import KVCache


class BlockAllocator(HandsOutNothing):
    pass


class PagedKVCache(KVCache):
    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, max_len or pool.config.max_seq_len, pool.dtype)
        self.table = [0, 1]


# %% blocks_follow_the_length: a table without keys and values
class BlockAllocator(FreeList):
    pass


class PagedKVCache(TableAlone):
    pass


# %% full_changes_nothing: lesson 03's cache, which counts the blocks that it would need
from course.minigpt.kv_cache import KVCache


class BlockAllocator(HandsOutNothing):
    pass


class PagedKVCache(KVCache):
    every = []

    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, max_len or pool.config.max_seq_len, pool.dtype)
        self.pool, self.table = pool, []
        self.every.append(self)

    def append(self, layer, k, v):
        lengths = [len(one) for one in self.every if one.pool is self.pool and one is not self]
        blocks = [-(-n // self.pool.block_size) for n in (*lengths, len(self) + k.shape[2])]
        if sum(blocks) > self.pool.n_blocks:
            raise CacheFull
        return super().append(layer, k, v)


# %% forks_stay_apart: lesson 03's cache, copied whole
import copy

from course.minigpt.kv_cache import KVCache


class BlockAllocator(HandsOutNothing):
    pass


class PagedKVCache(KVCache):
    every = []

    def __init__(self, pool, max_len=None):
        super().__init__(pool.config, 1, max_len or pool.config.max_seq_len, pool.dtype)
        self.pool, self.table = pool, [len(self.every)] * 9
        self.every.append(self)

    def fork(self):
        return copy.deepcopy(self)

    def adopt(self, blocks):
        first = self.every[blocks[0]]
        self.keys, self.values = first.keys.clone(), first.values.clone()
        self.length = len(blocks) * self.pool.block_size


# %% one_block_is_copied: a fork that takes no block, and a table without keys and values
class BlockAllocator(FreeList):
    def release(self, blocks):
        self.free += [block for block in blocks if block not in self.free]


class PagedKVCache(TableAlone):
    def nbytes(self):
        return 0

    def fork(self):
        twin = PagedKVCache(self.pool)
        twin.table, twin.length = list(self.table), self.length
        return twin

    def adopt(self, blocks):
        self.table, self.length = list(blocks), len(blocks) * self.pool.block_size


# %% keys_say_the_whole_past: a checksum of 32 bits
import zlib


def block_keys(tokens, block_size):
    ends = range(block_size, len(tokens) + 1, block_size)
    return [zlib.crc32(repr(tokens[:end]).encode()).to_bytes(4, "big") for end in ends]


# %% reuse_leaves_a_token: as many known blocks as fit, whichever they are
def block_keys(tokens, block_size):
    return [repr(tokens[i : i + block_size]).encode() for i in range(0, len(tokens), block_size)]


def reusable_blocks(tokens, block_size, known):
    return [*known.values()][: (len(tokens) - 1) // block_size]


# %% saved_share_of_flops: the share of tokens
def prefill_saved(config, n_prompt, n_cached):
    return n_cached / n_prompt
