# %% [markdown]
# # 10 · Pages that conversations share
#
# {{badge}}
#
# Lesson 03's cache reserves room for the longest text. Here a text takes small blocks as it needs them
# from a pool that all conversations share.
#
# **After this lesson you can**
#
# * hand out blocks, count their owners, and never lose one,
# * build a KV cache whose tokens lie anywhere in memory, with *the same logits*,
# * share blocks between conversations, and say when one must be copied,
# * say which blocks a new prompt may reuse, and what that saves.
#
# **You build:** a pool of blocks, a cache of pages, and copy-on-write.
# **Time:** 90 minutes. **Points:** 10. **Needs:** lessons 03 and 05 (your answers, or ours).
#
# > **Predict.** Eight chats share a prompt of 200 tokens, in blocks of 16. Then each writes one more
# > token. How many new blocks do they take? Write the number down.

# %% tags=["setup"]

# %% tags=["export"]
import hashlib
from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from course.model.bounds import check_between
from course.model.cache import CacheFull, check_block
from course.model.config import GPTConfig
from course.minigpt.roofline import phase_cost
from course.given.pages import (
    LARGEST,
    check_block_numbers,
    check_cache_limit,
    check_pool_sizes,
    check_token_list,
)

# %%
import zlib

from course.checks import paged_cache as checks
from course.measure.machine import interleaved, one_thread
from course.given.collisions import two_that_collide
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached
from course.model import MiniGPT
from course.plots.paged_cache import (
    draw_first_token,
    draw_forks,
    draw_pool_over_time,
    draw_waste,
)
from course.plots.style import show
from course.plots.times import draw_times
from course.widgets.paged_cache import waste_of_blocks
from course.world.requests import MEMORY, Blocks, Whole, draw_requests, simulate
from course.world.tokenizer import decode, encode

story = MiniGPT.from_weights("story")

# %% [markdown]
# ## The picture
#
# 400 users send requests; nobody knows how long an answer will be. Memory holds 8,192 tokens, and a text
# at most 1,024. Each line is one moment; seven alternating colours distinguish the texts.

# %%
requests = draw_requests(400)
show(draw_pool_over_time(requests, steps=range(40, 240, 10)))

# %% [markdown]
# Above, each text reserves the most it may need: eight run, and most of their memory is empty. Below, a
# text takes 16 places at a time, wherever they are free.

# %%
policies = {"at max_len": Whole("max_len"), "next power of two": Whole("power of two")}
policies["length known"] = Whole("known")
policies |= {f"blocks of {size}": Blocks(size) for size in (64, 16, 8, 1)}
traces = {name: simulate(requests, MEMORY, policy) for name, policy in policies.items()}
for name, trace in traces.items():
    print(f"{name:<18}{trace.running:4.0f} texts at once, {trace.steps:5,} steps for all", end=", ")
    print(f"{trace.put_back} times put back")
show(draw_waste(traces))

# %% [markdown]
# **Put back**: when a text needs a block and none is free, the newest text gives up its blocks and
# computes its tokens again later (at no cost here). "Length known" and "next power of two"
# assume the length is known beforehand.
#
# Kwon et al. (2023) measured the same in serving systems: 20 to 38 % of the cache's memory used before,
# 96 % with blocks (PagedAttention, vLLM). In OPT-13B a token takes {{819,200 = 2 * 40 * 5120 * 2}} bytes
# and a 2,048-token reservation {{1,677,721,600 = 2048 * 2 * 40 * 5120 * 2}}.
#
# > **Spot the slip.** "Paging removes fragmentation."
#
# <details><summary>Answer</summary>
# It removes the gaps <em>between</em> texts (external fragmentation). But the last block of each text
# is half empty on average (internal fragmentation): {{7.5 = sum(range(16)) / 16}} places of 16, orange
# in the chart.
# </details>
#
# ## 1 · Who owns a block?
#
# *Difficulty 2 of 5 · importance 5 of 5 · 12 minutes*
#
# Blocks have numbers, 0 to `n_blocks - 1`. A block may have several owners, so the allocator keeps a
# count for each: `allocate` starts it at 1, `share` adds one, `release` takes one away, and at 0 the
# block is free. Free blocks may be handed out in any order.
#
# **A refusal changes nothing**: check the whole list before you change any count. A list may name a block
# twice; then it counts twice.
#
# **The common wrong answer** frees a block at the first `release`. A stranger then overwrites the other
# owner's words.
#
# Write the methods of `BlockAllocator`, which knows who owns which block.
#
# <details><summary>Hint 1: the idea</summary>
# A stack of free numbers and a list of counts. When may a number go back on the stack?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>free</code>: a list of numbers. <code>counts</code>: one number per block, 0 if free.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# First a loop that only checks and raises, then one that only changes. <code>Counter</code> tells how
# often a list names each block.
# </details>


# %% nbgrader={"grade_id": "BlockAllocator", "solution": true}
class BlockAllocator:
    """The numbers 0 … n_blocks - 1, each free or with a count of owners.

    Raises:
        ValueError: a number that is no block.
        Whatever is refused changes nothing.
    """

    def __init__(self, n_blocks: int) -> None:
        check_between("n_blocks", n_blocks, 1, LARGEST)
        self.n_blocks = n_blocks
        ### BEGIN SOLUTION
        self.free = list(range(n_blocks))
        self.counts = [0] * n_blocks
        ### END SOLUTION

    def __len__(self) -> int:
        """Free blocks."""
        ### BEGIN SOLUTION
        return len(self.free)
        ### END SOLUTION

    def owners(self, block: int) -> int:
        """Owners of a block; 0 if it is free."""
        check_block_numbers([block], self.n_blocks)
        ### BEGIN SOLUTION
        return self.counts[block]
        ### END SOLUTION

    def allocate(self, n: int = 1) -> list[int]:
        """Hand out n free blocks, 0 or more, one owner each, in a list that the caller may change.

        Raises:
            CacheFull: fewer are free.
        """
        check_between("n", n, 0, LARGEST)
        ### BEGIN SOLUTION
        if n > len(self.free):
            raise CacheFull(f"{n} blocks are needed, {len(self.free)} of {self.n_blocks} are free")
        blocks = [self.free.pop() for _ in range(n)]
        for block in blocks:
            self.counts[block] = 1
        return blocks
        ### END SOLUTION

    def share(self, blocks: list[int]) -> None:
        """Count one owner more for each block of the list, which stays as it is.

        Raises:
            ValueError: a block of them is free.
        """
        check_block_numbers(blocks, self.n_blocks)
        ### BEGIN SOLUTION
        for block in blocks:
            if self.counts[block] == 0:
                raise ValueError(f"block {block} is free and cannot be shared")
        for block in blocks:
            self.counts[block] += 1
        ### END SOLUTION

    def release(self, blocks: list[int]) -> None:
        """Count one owner fewer for each block of the list, which stays as it is; those without any
        are free.

        Raises:
            ValueError: a block of them is free, or stands in the list more often than it has owners.
        """
        check_block_numbers(blocks, self.n_blocks)
        ### BEGIN SOLUTION
        for block, times in Counter(blocks).items():
            if self.counts[block] < times:
                raise ValueError(f"block {block} has {self.counts[block]} owners, not {times}")
        for block in blocks:
            self.counts[block] -= 1
            if self.counts[block] == 0:
                self.free.append(block)
        ### END SOLUTION


# %% nbgrader={"grade_id": "blocks_are_given_once", "points": 1}
checks.blocks_are_given_once(BlockAllocator)

# %% nbgrader={"grade_id": "a_refusal_is_whole", "points": 1}
checks.a_refusal_is_whole(BlockAllocator)

# %% [markdown]
# ## 2 · A cache of pages
#
# *Difficulty 4 of 5 · importance 5 of 5 · 40 minutes*
#
# The pool is given: it holds the storage and your allocator.


# %% tags=["export"]
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


# %% [markdown]
# A cache keeps only a *table* of its text's blocks, in text order. Token 37 in blocks of 16 is in block
# `table[2]`, place {{5 = 37 % 16}}. `append` gathers all blocks by the table, since `forward_cached`
# wants one tensor (section 4 measures the cost), and returns exactly the held and new tokens, not the
# unused places after them.
#
# * Blocks are taken in `append`, by whichever layer comes first; one block serves **all layers**.
# * None is taken before a token needs it. `truncate` and `reset` release every block without a token,
#   also those of an append that was never advanced.
# * If too few blocks are free, raise `CacheFull` and change neither cache nor pool.
#
# **`fork`** makes a second cache of the same tokens: it has the same table, adds one owner to each block,
# and takes no bytes. **`adopt`** lets an empty cache begin with existing full blocks. Blocks with
# several owners are read-only. **Whoever writes into one copies that
# block first**, in all layers, puts the copy into its own table, and gives up its share of the old one
# (*copy-on-write*). The last owner writes in place.
#
# **The common wrong answer** forgets the copy: of two chats, the slower one continues with the other's
# words.
#
# Write `append`, `truncate`, `reset`, `nbytes`, `fork` and `adopt` of `PagedKVCache`.
#
# <details><summary>Hint 1: the idea</summary>
# Before writing: how many blocks are missing, and is the first one you write shared? One
# <code>allocate</code> call for all succeeds or fails as a whole.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Per layer (G, n_blocks, size, D); of the table (G, n, size, D) → (G, n · size, D) → the first S → (1, G,
# S, D). Token i: block <code>table[i // size]</code>, place i % size.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>append</code>: end; limit; blocks; write by two index tensors (blocks, places); read by
# <code>index_select</code>, <code>flatten</code>, a slice, <code>unsqueeze</code>. <code>truncate</code>:
# cut the table after the last needed block, rounding <em>up</em>.
# </details>


# %% nbgrader={"grade_id": "PagedKVCache", "solution": true}
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
        ### BEGIN SOLUTION
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
        ### END SOLUTION

    def advance(self, n: int) -> None:
        """Count n tokens more as held: once per forward pass, after the last layer."""
        check_between("n", n, 0, self.max_len - len(self))
        self.length += n

    def truncate(self, n: int) -> None:
        """Keep the first n tokens, and the blocks that they lie in; release the others."""
        check_between("n", n, 0, len(self))
        ### BEGIN SOLUTION
        kept = -(-n // self.pool.block_size)
        self.pool.allocator.release(self.table[kept:])
        self.table, self.length = self.table[:kept], n
        ### END SOLUTION

    def reset(self) -> None:
        """Forget every token, and release all blocks."""
        ### BEGIN SOLUTION
        self.truncate(0)
        ### END SOLUTION

    def nbytes(self) -> int:
        """Bytes of the blocks in the table, keys and values of all layers, shared ones included."""
        ### BEGIN SOLUTION
        pool = self.pool
        return len(self.table) * (pool.keys.nbytes + pool.values.nbytes) // pool.n_blocks
        ### END SOLUTION

    def fork(self) -> "PagedKVCache":
        """A second cache with the same tokens, pool and max_len: it shares all blocks and takes no new
        one. Called between forward passes."""
        ### BEGIN SOLUTION
        twin = PagedKVCache(self.pool, self.max_len)
        self.pool.allocator.share(self.table)
        twin.table, twin.length = list(self.table), self.length
        return twin
        ### END SOLUTION

    def adopt(self, blocks: list[int]) -> None:
        """Begin with the tokens of these blocks, all full, of the same pool: they get one owner more, and
        blocks of an append that was never advanced are released.

        Raises:
            ValueError: tokens are held already, there are more than max_len, or a block is free.
        """
        check_between("tokens held", len(self), 0, 0)
        check_between("tokens adopted", len(blocks) * self.pool.block_size, 0, self.max_len)
        ### BEGIN SOLUTION
        self.pool.allocator.share(blocks)
        self.pool.allocator.release(self.table)  # of an append that was never advanced
        self.table = list(blocks)
        self.length = len(blocks) * self.pool.block_size
        ### END SOLUTION


# %% nbgrader={"grade_id": "every_split_through_any_table", "points": 2}
checks.every_split_through_any_table(PagedKVCache, BlockPool)

# %% nbgrader={"grade_id": "blocks_follow_the_length", "points": 1}
checks.blocks_follow_the_length(PagedKVCache, BlockPool)

# %% nbgrader={"grade_id": "full_changes_nothing", "points": 1}
checks.full_changes_nothing(PagedKVCache, BlockPool)

# %% nbgrader={"grade_id": "forks_stay_apart", "points": 1}
checks.forks_stay_apart(PagedKVCache, BlockPool)

# %% nbgrader={"grade_id": "one_block_is_copied", "points": 1}
checks.one_block_is_copied(PagedKVCache, BlockPool)

# %% [markdown]
# Two chats begin alike:

# %%
pool = BlockPool(story.config, n_blocks=12, block_size=4)
chat = PagedKVCache(pool)
_ = forward_cached(story, encode("The cat sat on the mat. Mia came with"), chat)
other, moments = chat.fork(), {}
moments["after the fork"] = [list(chat.table), list(other.table)], [len(chat), len(other)]
for name, cache in (("first", chat), ("second", other)):
    _ = forward_cached(story, encode("a lamp" if cache is chat else "a key"), cache)
    tables = [list(chat.table), list(other.table)]
    moments[f"the {name} has written"] = tables, [len(chat), len(other)]
show(draw_forks(moments, pool.n_blocks, pool.block_size))

# %% [markdown]
# The first writer made a copy; the second, now sole owner, wrote in place. Check your prediction:

# %%
pool = BlockPool(story.config, n_blocks=120, block_size=16)
first, text = PagedKVCache(pool), torch.randint(story.config.vocab_size, (1, 201))
_ = forward_cached(story, text[:, :200], first)
chats = [first, *(first.fork() for _ in range(7))]
print("eight chats of 200 tokens:", pool.n_blocks - len(pool.allocator), "blocks")
for cache in chats:
    _ = forward_cached(story, text[:, 200:], cache)
print("after one more token each:", pool.n_blocks - len(pool.allocator), "blocks")

# %% [markdown]
# 200 tokens fill {{12.5 = 200 / 16}} blocks, so all write into the 13th. Seven copy it; the last owner
# writes in place: **7** new blocks, {{20 = 13 + 7}} in all. **Common wrong answers:** 8 (the last owner
# needs no copy) and {{104 = 8 * 13}} (all blocks of all texts, were none shared).
#
# How large should a block be? The sliders set block size, how long prompts and answers are, and how many
# users ask at once.

# %%
waste_of_blocks()

# %% [markdown]
# ## 3 · The same beginning, again
#
# *Difficulty 3 of 5 · importance 4 of 5 · 12 minutes*
#
# A thousand users send the same instructions before their question. Full blocks stay unchanged until
# their text is truncated, so you can look them up by a *key*. What must it depend on?
#
# > **Spot the slip.** "Hash each block's tokens; equal hash, equal keys and values."
#
# <details><summary>Answer</summary>
# Keys and values depend on everything before a token (lesson 01: *what moves when a word changes*). The
# same words after another past are other numbers.
# </details>
#
# `block_keys` gives a key to each **full** block. Two keys are equal only if all tokens from the start
# to the end of the block are. A short checksum is not enough. Nor is Python's `hash()`, made for speed:
# vLLM used it at first, and prompts with colliding keys could be constructed (CVE-2025-25183). Now it
# uses SHA-256.
#
# <details><summary>Hint 1: the idea</summary>
# Build a chain: each hash includes the previous block's key.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# P tokens give P // block_size keys. Leftover tokens have none.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>key = b""</code>, and for each full block <code>hashlib.sha256(key + …).digest()</code>. Turn the
# tokens into bytes so that 1, 23 and 12, 3 differ.
# </details>


# %% nbgrader={"grade_id": "block_keys", "solution": true}
def block_keys(tokens: list[int], block_size: int) -> list[bytes]:
    """A key for each full block of a text, that tells the block's tokens and all before them.

    The same tokens always get the same keys, for as long as Python runs. A key of 64 tokens or more has
    16 bytes at least.

    Args:
        tokens: whole numbers from 0 on; may be empty.
        block_size: tokens of a block, at least 1.
    """
    check_token_list(tokens, block_size)
    ### BEGIN SOLUTION
    keys, key = [], b""
    for end in range(block_size, len(tokens) + 1, block_size):
        block = tokens[end - block_size : end]
        key = hashlib.sha256(key + repr(block).encode()).digest()
        keys.append(key)
    return keys
    ### END SOLUTION


# %% nbgrader={"grade_id": "keys_say_the_whole_past", "points": 1}
checks.keys_say_the_whole_past(block_keys)

# %% [markdown]
# A new prompt reuses its longest run of known blocks from the start. The cache does not hold the last
# token's *logits*, so at least one token must be left to feed. (vLLM recomputes the last block.)
#
# Write `reusable_blocks`: the known blocks with which a prompt begins.
#
# <details><summary>Hint 1: the idea</summary>
# Go through the keys from the start, and stop at the first that is not known.
# </details>
# <details><summary>Hint 2: the shapes</summary>
# 12 tokens in blocks of 4: at most 2 blocks, not 3. 13 tokens: at most 3.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>block_keys</code> of all tokens but the last; a loop with a <code>break</code>.
# </details>


# %% nbgrader={"grade_id": "reusable_blocks", "solution": true}
def reusable_blocks(tokens: list[int], block_size: int, known: Mapping[bytes, int]) -> list[int]:
    """Numbers of the known blocks with which a text begins, as many as there are, in its order. At
    least one token is left to be fed.

    Args:
        tokens: of the text, at least one.
        block_size: tokens of a block, at least 1.
        known: block numbers by the keys of `block_keys`. Nothing is added.
    """
    check_token_list(tokens, block_size, at_least=1)
    ### BEGIN SOLUTION
    found = []
    for key in block_keys(tokens[:-1], block_size):  # the last token is always fed
        if key not in known:
            break
        found.append(known[key])
    return found
    ### END SOLUTION


# %% nbgrader={"grade_id": "reuse_leaves_a_token", "points": 0.5}
checks.reuse_leaves_a_token(block_keys, reusable_blocks)

# %% [markdown]
# What would a collision do? It is easy to find two users' first 20 tokens with the same crc32:

# %%
first, second, tries = two_that_collide(lambda tokens: zlib.crc32(repr(tokens).encode()))
print(f"of {tries:,} beginnings, two have one crc32:\n  user 1: {first}\n  user 2: {second}")
texts = [encode(text)[0].tolist() for text in (first, f"{second} Where is the")]
pool = BlockPool(story.config, n_blocks=8, block_size=20)
writer = PagedKVCache(pool)
_ = forward_cached(story, torch.tensor(texts[:1]), writer)
known = dict(zip(block_keys(texts[0], 20), writer.table, strict=True))
for name, blocks in {
    "by crc32": writer.table,
    "by your keys": reusable_blocks(texts[1], 20, known),
}.items():
    cache = PagedKVCache(pool)
    cache.adopt(blocks)
    out = generate_cached(story, torch.tensor([texts[1][len(cache) :]]), 6, cache)
    print(f"user 2 reads, {name}: Where is the {decode(out[0, -6:])}")

# %% [markdown]
# By the checksum, user 2 hears a stranger's words; your keys reuse nothing.
#
# What does reuse save? `prefill_saved` returns the share of lesson 05's FLOPs that cached tokens save.
#
# <details><summary>Hint 1: the idea</summary>
# Cached tokens are past; all others are new. What would the whole prompt cost?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# A number from 0 (nothing cached) to nearly 1.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Two calls of <code>phase_cost</code>, their <code>flops</code>, one division.
# </details>


# %% nbgrader={"grade_id": "prefill_saved", "solution": true}
def prefill_saved(config: GPTConfig, n_prompt: int, n_cached: int) -> float:
    """Share of the FLOPs of a prefill that cached tokens save, 0 … 1, as `phase_cost` counts.

    Args:
        config: sizes of the model.
        n_prompt: tokens of the prompt, at least 1.
        n_cached: first tokens of it whose keys and values are cached, 0 … n_prompt - 1.
    """
    check_between("n_prompt", n_prompt, 1, LARGEST)
    check_between("n_cached", n_cached, 0, n_prompt - 1)
    ### BEGIN SOLUTION
    rest = phase_cost(config, n_prompt - n_cached, n_cached)
    return 1 - rest.flops / phase_cost(config, n_prompt, 0).flops
    ### END SOLUTION


# %% nbgrader={"grade_id": "saved_share_of_flops", "points": 0.5}
checks.saved_share_of_flops(prefill_saved)

# %% [markdown]
# > **Predict.** Of a prompt of 512 tokens, 496 are cached. How many times faster does its first token
# > come?

# %%
text = torch.randint(story.config.vocab_size, (1, 512))
tokens, pool = text[0].tolist(), BlockPool(story.config, n_blocks=80, block_size=16)
writer = PagedKVCache(pool)
_ = forward_cached(story, text, writer)
known = dict(
    zip(block_keys(tokens, 16), writer.table, strict=True)
)  # offered once they are written
pool.allocator.share(
    list(known.values())
)  # an offer is an owner, so none of them is handed out again


def first_token(n_shared):
    cache = PagedKVCache(pool)
    cache.adopt(reusable_blocks(tokens, 16, known)[: n_shared // 16])
    logits = forward_cached(story, text[:, n_shared:], cache)[:, -1]
    cache.reset()
    return logits


shared = (0, 128, 256, 384, 448, 496)
with one_thread():
    times = interleaved({n: lambda n=n: first_token(n) for n in shared}, rounds=7)
apart = max(float((first_token(n) - story(text)[:, -1]).abs().max()) for n in shared)
print(f"largest difference of any logit from those without a cache: {apart:.0e}")
show(draw_first_token(times, {n: prefill_saved(story.config, 512, n) for n in shared}))

# %% [markdown]
# FLOPs predict the time, until so few tokens remain that a pass's fixed cost dominates.
#
# Cached input is cheap, not free. For Llama-3-8B with 1,984 of 2,000 prompt tokens cached, you need
# {{120 = 1 / (1 - prefill_saved(PUBLISHED["Llama-3-8B"].config, 2000, 1984))}} times fewer FLOPs, but
# only {{1.7 = phase_cost(PUBLISHED["Llama-3-8B"].config, 2000, 0).bytes /
# phase_cost(PUBLISHED["Llama-3-8B"].config, 16, 1984).bytes}} times fewer bytes: weights and cache must
# still be read.
#
# ## 4 · The price
#
# Your `append` gathers *all* blocks into fresh memory at every step.
#
# > **Predict.** One layer, 8,192 tokens. How many times as long does one token take with your cache as
# > with lesson 03's?

# %%
S, config = 8192, GPTConfig(30, 1, 4096, 32, 8, 64, max_seq_len=8193)  # H = 32, G = 8, D = 128
plain, paged = KVCache(config, 1, S + 1), PagedKVCache(BlockPool(config, 513, 16))
q, held, new = torch.randn(8, 4, 128), torch.randn(2, 1, 8, S, 128), torch.randn(2, 1, 8, 1, 128)
for cache in (plain, paged):
    _ = cache.append(0, *held)
    cache.advance(S)


def step(cache):
    k, v = (rows[0] for rows in cache.append(0, *new))  # (G, S + 1, D), not advanced
    return (q @ k.mT / 128**0.5).softmax(dim=-1) @ v


with one_thread():
    calls = {"contiguous": lambda: step(plain), "pages, gathered": lambda: step(paged)}
    times = interleaved(calls, rounds=9)
show(draw_times(times, "one token appended and attended, one layer", beside="contiguous"))

# %% [markdown]
# The fresh copy costs most: each step writes it, then reads it. Lesson 09's tiles stay in the processor's
# cache. On a GPU one kernel follows the table itself (*PagedAttention*). vLLM today shares only full
# blocks, so it never copies.
#
# ## Check yourself
#
# <details><summary>Blocks of one token waste least. Why do most engines take 16 or more?</summary>
# Each needs a table entry, a count and a lookup, and memory is read in tiny pieces. <em>Common wrong
# answer:</em> "they waste memory". The chart shows the opposite.
# </details>
# <details><summary>The second user's prompt was cached. Is the answer the same?</summary>
# Yes, up to rounding: the cached numbers are what the prompt would give. <em>Common wrong answer:</em>
# "it depends on the first user's answer". Only blocks with the very same past are reused.
# </details>
# <details><summary>When may a block be offered to others?</summary>
# When it is full and <em>written</em>, in all layers. <em>Common wrong answer:</em> "once allocated".
# Another request would read unwritten places. Also, whoever offers a block is an owner until withdrawing
# the offer (lesson 15); otherwise the block is handed out again, and the next user reads a stranger's
# words.
# </details>
#
# ## Next
#
# Memory now holds as many texts as it can. Who is served next? That is **lesson 11**.
