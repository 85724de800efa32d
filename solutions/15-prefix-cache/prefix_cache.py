# %% [markdown]
# # 15 · Keep, forget or fetch?
#
# {{badge}}
#
# A server reads the same beginnings all day: instructions, documents, what was said before. Lesson 10
# found known blocks again. But when the pool is full, which blocks should stay, and when is recomputing
# cheaper than keeping?
#
# **After this lesson you can**
#
# * keep prefixes in a tree that owns its blocks, and forget the right ones,
# * admit a request without evicting what it is about to reuse,
# * say when a slower memory is worth the trip.
#
# **You build:** a prefix cache that lives in a full pool. **Time:** 70 minutes. **Points:** 10.
# **Needs:** lessons 05, 10 and 11 (your answers, or ours).
#
# > **Predict.** 64 questions arrive about 8 documents of 10 blocks each, in turn. The documents and the
# > current question fit in 82 blocks; the pool has 70, and forgets what was used longest ago. What share
# > of the prompts' tokens need not be computed?

# %% tags=["setup"]

# %% tags=["export"]
import math
from collections.abc import Sequence
from typing import Any

from course.given.prefixes import (
    Node,
    check_admission,
    check_known,
    check_wait,
    check_words,
    nodes_below,
)
from course.measure.limits import Machine
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.roofline import phase_cost
from course.model.bounds import check_between
from course.model.cache import CacheFull
from course.model.config import GPTConfig
from course.serving.request import Request

# %%
import random

from course.checks import prefix_cache as checks
from course.given.prefixes import PaperCache, PaperPool
from course.measure.datasheets import DATASHEETS
from course.minigpt.paged_cache import BlockAllocator
from course.plots.prefix_cache import draw_links, draw_memory, draw_rules
from course.plots.style import show
from course.published.models import PUBLISHED
from course.widgets.prefix_cache import choose_memory
from course.world.chats import draw_chats, draw_documents, serve, spared_by_rule

# %% [markdown]
# ## 1 · A tree that owns its blocks
#
# *Difficulty 4 of 5 · importance 5 of 5 · 30 minutes*
#
# In a **prefix tree** (SGLang's RadixAttention; Zheng et al. 2024), the first blocks of all known texts
# hang below the root, and below each block those that followed it. You search by the words themselves, so
# no checksum can collide.
#
# * **An offer is an owner.** The tree counts as one owner of each block that it knows. So a block that it
#   offers is never free, and nobody reads a stranger's words. In lesson 10, an offer had to be withdrawn
#   whenever a block was handed out again; forgetting and releasing it are now one move.
# * **Only leaves go.** Nobody can find a block whose parent is forgotten, yet it takes up room.
# * **Least recently used first**, and only blocks that nobody else owns: an owner is a lock. You need no
#   second counter that could be wrong.
#
# `insert` offers blocks that are full *and written*. If the tree already knows the words, it keeps its
# block; the cache keeps its own, and both go on. A lookup, `match`, changes nothing.
#
# **Two common wrong answers.** One forgets a text's first block first, since it comes first in the list;
# the blocks below it can then no longer be found, and stay. The other counts only leaves in `evictable`,
# though evicting one can make its parent a leaf.
#
# Write the methods of `PrefixTree`. You are given a `Node` with block, words, parent, moment of use and
# children, and `nodes_below`, which yields all below one; you need not use them.
#
# <details><summary>Hint 1: the idea</summary>
# Walk down from the root, matching the words of one block at a time. What do <code>match</code> and
# <code>insert</code> do on the way? Which blocks can go once those below them are gone?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>children</code>: a dict from a tuple of <code>block_size</code> tokens to a Node. A moment is a
# number that each <code>insert</code> raises by one.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>match</code>: all tokens but the last, a loop with a <code>break</code>. <code>evictable</code>: a
# node counts if it has one owner and all below it count. <code>evict</code>: check
# <code>evictable()</code>; then n times the <code>min</code> of the leaves with one owner.
# </details>


# %% nbgrader={"grade_id": "PrefixTree", "solution": true}
class PrefixTree:
    """Known blocks, each below the words that stand before it; the tree is one owner of each.

    Args:
        allocator: lesson 10's, of the pool in which the blocks lie: `owners(block)`, and `share` and
            `release` of lists of blocks.
        block_size: tokens of a block.
    """

    def __init__(self, allocator: Any, block_size: int) -> None:
        check_between("block_size", block_size, 1, 2**31)
        self.allocator, self.block_size = allocator, block_size
        ### BEGIN SOLUTION
        self.root, self.moment = Node(), 0
        ### END SOLUTION

    def __len__(self) -> int:
        """Blocks that are offered."""
        ### BEGIN SOLUTION
        return sum(1 for _ in nodes_below(self.root))
        ### END SOLUTION

    def match(self, tokens: list[int]) -> list[int]:
        """Numbers of the known blocks with which a text begins, as many as there are, in a list that the
        caller may change; at least one token is left to feed. Owners and moments of use stay as they
        are."""
        check_words(tokens, at_least=1)
        ### BEGIN SOLUTION
        node, found, size = self.root, [], self.block_size
        for end in range(size, len(tokens), size):
            node = node.children.get(tuple(tokens[end - size : end]))
            if node is None:
                break
            found.append(node.block)
        return found
        ### END SOLUTION

    def insert(self, tokens: list[int], cache: Any) -> int:
        """Offer the blocks of a text that are full and written; return how many are new.

        Each new one gets one owner more, the tree. All these blocks, old and new, are used at this
        moment, all at once; so two leaves never have one moment. Neither tokens nor the cache's table is
        changed.

        Args:
            tokens: of the text, perhaps more or fewer than the cache holds; those that it holds are the
                first of them.
            cache: of this text. `len(cache)` tokens are written, in the blocks of `cache.table`.
        """
        check_words(tokens)
        ### BEGIN SOLUTION
        node, size, n_new = self.root, self.block_size, 0
        self.moment += 1
        for number in range(min(len(tokens), len(cache)) // size):
            words = tuple(tokens[number * size : (number + 1) * size])
            if words not in node.children:
                block = cache.table[number]
                self.allocator.share([block])
                node.children[words] = Node(block, words, node)
                n_new += 1
            node = node.children[words]
            node.used = self.moment
        return n_new
        ### END SOLUTION

    def evictable(self) -> int:
        """Blocks that could be evicted, one after the other: those that have no owner but the tree, and
        below which no other has one either."""
        ### BEGIN SOLUTION
        held, n = set(), 0
        for node in reversed(list(nodes_below(self.root))):  # children before their parents
            if node in held or self.allocator.owners(node.block) > 1:
                held.add(node.parent)
            else:
                n += 1
        return n
        ### END SOLUTION

    def evict(self, n: int) -> list[int]:
        """Forget and release n blocks; return their numbers, in the order in which they went.

        n times, of the leaves that only the tree owns, the one goes that was used least recently; then
        its parent may be a leaf.

        Raises:
            CacheFull: n is more than `evictable()`; nothing is changed.
        """
        check_between("n", n, 0, 2**31)
        ### BEGIN SOLUTION
        if n > self.evictable():
            raise CacheFull(f"{n} blocks are to be forgotten, {self.evictable()} can be")
        gone = []
        for _ in range(n):
            leaves = [node for node in nodes_below(self.root) if not node.children]
            free = [leaf for leaf in leaves if self.allocator.owners(leaf.block) == 1]
            leaf = min(free, key=lambda node: node.used)
            del leaf.parent.children[leaf.words]
            self.allocator.release([leaf.block])
            gone.append(leaf.block)
        return gone
        ### END SOLUTION


# %% nbgrader={"grade_id": "finds_the_longest_beginning", "points": 1}
checks.finds_the_longest_beginning(PrefixTree)

# %% nbgrader={"grade_id": "collisions_are_no_hits", "points": 0.5}
checks.collisions_are_no_hits(PrefixTree)

# %% nbgrader={"grade_id": "offers_what_is_written", "points": 1}
checks.offers_what_is_written(PrefixTree)

# %% nbgrader={"grade_id": "whose_words", "points": 1}
checks.whose_words(PrefixTree)

# %% nbgrader={"grade_id": "oldest_leaves_first", "points": 2}
checks.oldest_leaves_first(PrefixTree)

# %% nbgrader={"grade_id": "counts_what_can_go", "points": 1}
checks.counts_what_can_go(PrefixTree)

# %% [markdown]
# The figures show three texts in a toy pool, two of which (A and B) begin alike, where a block holds
# words in the place of keys and values. The number is a block's place in the pool; a frame means that
# somebody is still reading it.

# %%
pool = PaperPool(BlockAllocator(12), block_size=4)
tree, texts, readers = PrefixTree(pool.allocator, 4), {}, {}
for name, words in {"A": [1] * 4 + [2] * 8, "B": [1] * 4 + [3] * 8, "C": [4] * 12}.items():
    texts[name], readers[name] = words, PaperCache(pool)
    readers[name].adopt(tree.match(words))
    readers[name].write(words[len(readers[name]) :])
    tree.insert(words, readers[name])
readers["A"].reset()
readers["B"].reset()
show(draw_memory("A and B are answered, C is read", tree, pool, texts))
tree.evict(3)
show(draw_memory("three blocks were forgotten", tree, pool, texts))

# %% [markdown]
# ## 2 · Who may start
#
# *Difficulty 3 of 5 · importance 5 of 5 · 12 minutes*
#
# A request needs blocks for its prompt and all of its answer but the last token, which is never fed. What
# it can reuse must not be evicted to make room for it. So it **adopts first**, which locks these blocks,
# and then evicts as many blocks as are still missing.
#
# **The common wrong answer** makes room first and looks afterwards: the known beginning may be exactly
# what was used longest ago.
#
# Write `admit`.
#
# <details><summary>Hint 1: the idea</summary>
# Which blocks does the request own once it has adopted? How many must be free besides those promised to
# others?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# <code>len(prompt) + n_new - 1</code> tokens, rounded up to blocks. Missing: what is needed, minus
# what is adopted, plus what is promised, minus what is free.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>match</code>, <code>adopt</code>; a number of missing blocks, at least 0; if it is more than
# <code>evictable()</code>, <code>reset</code> and None; <code>evict</code>.
# </details>


# %% nbgrader={"grade_id": "admit", "solution": true}
def admit(
    tree: PrefixTree, cache: Any, prompt: list[int], n_new: int, promised: int = 0
) -> int | None:
    """Let an empty cache begin with what is known of a prompt, and make room for the rest.

    Afterwards so many blocks are free that the whole text fits, prompt and n_new - 1 tokens of its
    answer, beside `promised` blocks for others. No more is evicted than is missing for this. Nothing is
    offered, and no moment of use changes: `insert` will say that the prompt was used.

    Args:
        tree: its `allocator` (whose `len` is what is free), `block_size` and methods.
        cache: an empty cache of the same pool; its `adopt`, `reset` and `table`.
        prompt: tokens, at least one.
        n_new: tokens of the answer, at least 1.
        promised: blocks that others will still take, 0 or more.

    Returns:
        Tokens that need not be fed; None if there is no room: then nothing is changed.
    """
    check_admission(cache, prompt, n_new, promised)
    ### BEGIN SOLUTION
    cache.adopt(tree.match(prompt))
    needed = -(-(len(prompt) + n_new - 1) // tree.block_size) - len(cache.table)
    missing = max(0, needed + promised - len(tree.allocator))
    if missing > tree.evictable():
        cache.reset()
        return None
    tree.evict(missing)
    return len(cache)
    ### END SOLUTION


# %% nbgrader={"grade_id": "admits_or_changes_nothing", "points": 2}
checks.admits_or_changes_nothing(PrefixTree, admit)

# %% [markdown]
# Your prediction: the documents in turn, in a pool that holds most of them.

# %%
documents = draw_documents(8, 64)
for n_blocks in (70, 82):
    served = serve(documents, n_blocks, PrefixTree, BlockAllocator, admit)
    print(f"{n_blocks} blocks: {served.spared:.2f} of the tokens are spared")
for rule in ("at random", "used last goes first", "knows what comes"):
    print(f"70 blocks, {rule}: {spared_by_rule(documents, 70, rule):.2f}")

# %% [markdown]
# None: what was used longest ago is exactly what comes next. **Common wrong answer:** seven eighths,
# since most of it fits. Even a rule that forgets at random does better here. But who asks in turn? Here
# are chats drawn at random, with four system prompts, several turns each, and some one-off texts:

# %%
chats, sizes = draw_chats(60), (64, 96, 160, 256, 384)
shares = {"your tree": [serve(chats, n, PrefixTree, BlockAllocator, admit).spared for n in sizes]}
for rule in ("first in, first out", "at random", "knows what comes"):
    shares[rule] = [spared_by_rule(chats, n, rule) for n in sizes]
show(draw_rules(shares, sizes, len(chats)))

# %% [markdown]
# The tree beats "first in, first out" and, by a little, random eviction. A random trace proves no policy:
# production shows hit rates of 54 and 62 %, where synthetic traces promise above 80 % (Wang et al. 2025).
#
# ## 3 · Known beginnings first
#
# *Difficulty 2 of 5 · importance 4 of 5 · 8 minutes*
#
# For the documents, another *order* helps more than another rule: requests whose beginning is known now
# go first. This can starve the others (lesson 11). So requests that waited too long go before them all.
#
# Write `order_by_prefix`.
#
# <details><summary>Hint 1: the idea</summary>
# Two groups. In which order does each of them go?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Two lists of requests; together as many as wait.
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# Two comprehensions; <code>sorted</code> with a <code>key</code>, which is computed once for each and
# keeps ties in order.
# </details>


# %% nbgrader={"grade_id": "order_by_prefix", "solution": true}
def order_by_prefix(
    tree: PrefixTree, waiting: Sequence[Request], now: float, max_wait: float
) -> list[Request]:
    """Order the waiting requests: known beginnings first, and nobody waits for ever.

    First those that have waited longer than max_wait, in the order of the queue; then the others, those
    with the most known blocks first, of equally many in the order of the queue.

    Args:
        tree: its `match` is called at most once for each request.
        waiting: in the order of the queue; not changed. A request has `prompt`, of which `match` wants a
            list, and `arrival`.
        now: the time, as `arrival` counts it.
        max_wait: in the same unit, 0 or more, perhaps infinite.

    Returns:
        The same requests in a list of its own.
    """
    check_wait(waiting, max_wait)
    ### BEGIN SOLUTION
    late = [request for request in waiting if now - request.arrival > max_wait]
    others = [request for request in waiting if not now - request.arrival > max_wait]
    return late + sorted(others, key=lambda request: -len(tree.match(list(request.prompt))))
    ### END SOLUTION


# %% nbgrader={"grade_id": "known_first_late_before_all", "points": 1}
checks.known_first_late_before_all(order_by_prefix)


# %%
def known_first(tree, waiting, now):
    return order_by_prefix(tree, waiting, now, math.inf)


shuffled = list(documents)
random.Random(1).shuffle(shuffled)
for n_blocks in (14, 34, 64):
    for name, order in {"as they came": None, "known first": known_first}.items():
        served = serve(shuffled, n_blocks, PrefixTree, BlockAllocator, admit, order)
        print(f"{n_blocks} blocks, {name:<13} {served.spared:.2f} spared", end="; ")
        print(f"overtaken by at most {max(served.waits)} later requests")

# %% [markdown]
# With room for one document, the right order spares as much as a pool for all. In return, whoever asks
# about the last one has to wait.
#
# Change the size of the pool, the requests and the order:

# %%
choose_memory(PrefixTree, admit, order_by_prefix)

# %% [markdown]
# ## 4 · Fetch, or compute again?
#
# *Difficulty 3 of 5 · importance 4 of 5 · 8 minutes*
#
# Evicted blocks could go to a slower memory and come back over a link. Is this faster than a prefill?
#
# > **Predict.** 2,000 tokens lie in the memory of the host; the link carries 25 GB a second. Fetch or
# > compute, for Llama-3-8B (262 MB of keys and values)? And for SmolLM2-135M (46 MB)?
#
# Write `slowest_link`: the link speed at which fetching takes exactly the time that it saves.
#
# <details><summary>Hint 1: the idea</summary>
# Which two passes differ, and by how much time? How many bytes come over the link?
# </details>
# <details><summary>Hint 2: the shapes</summary>
# Seconds of a pass: FLOPs divided by FLOP/s, or bytes divided by bytes/s, whichever is more (lesson
# 05).
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
# <code>phase_cost</code> of all tokens, and of the rest after those known;
# <code>kv_cache_bytes</code>; a difference, and a division.
# </details>


# %% nbgrader={"grade_id": "slowest_link", "solution": true}
def slowest_link(
    config: GPTConfig, n_prompt: int, n_known: int, machine: Machine, bytes_per_element: int = 2
) -> float:
    """Bytes per second at which fetching the first n_known tokens takes the time that it spares.

    Fetched are their keys and values. Spared is the time of a pass of the whole prompt, less that of a
    pass of the rest with the known ones before it. A pass takes as long as its FLOPs or its bytes,
    whichever takes longer, by `phase_cost`.

    Args:
        config: sizes of the model.
        n_prompt: tokens of the prompt, 2 or more.
        n_known: 1 … n_prompt - 1.
        machine: its `flops_per_second` and `bytes_per_second`.
        bytes_per_element: of weights, activations and cache.

    Returns:
        Bytes per second. Whatever is known, it spares FLOPs and bytes, so its time is never 0.
    """
    check_known(n_prompt, n_known)
    ### BEGIN SOLUTION
    seconds = []
    for n_new, n_past in ((n_prompt, 0), (n_prompt - n_known, n_known)):
        cost = phase_cost(config, n_new, n_past, bytes_per_element=bytes_per_element)
        computing = cost.flops / machine.flops_per_second
        seconds.append(max(computing, cost.bytes / machine.bytes_per_second))
    spared = seconds[0] - seconds[1]
    n_bytes = kv_cache_bytes(config, n_known, bytes_per_element=bytes_per_element)
    return n_bytes / spared
    ### END SOLUTION


# %% nbgrader={"grade_id": "dearer_than_computing", "points": 0.5}
checks.dearer_than_computing(slowest_link)

# %%
sheet = DATASHEETS["H100"]  # real passes reach about half of its FLOP/s, 0.8 of its bytes/s
machine = Machine("H100", sheet.flops_per_second / 2, 0.8 * sheet.bytes_per_second)
models = ("SmolLM2-135M", "Llama-2-7B", "Llama-3-8B", "Llama-3-70B")
lengths = (64, 128, 250, 500, 1000, 2000, 4000, 8000, 16_000)
links = {
    name: [slowest_link(PUBLISHED[name].config, n + 16, n, machine) for n in lengths]
    for name in models
}
show(draw_links(links, lengths))

# %% [markdown]
# At 2,000 tokens: fetch for Llama-3-8B, compute for SmolLM2. Bytes depend on layers and KV heads, compute
# on the weights; in a small model the weights shrink more than the cache. Caches that lessons 06, 07 and
# 13 shrink are cheaper to fetch as well; Llama-2-7B has no GQA, so its cache is large.
#
# > **Spot the slip.** "Recompute wins for short to medium prompts, under about 4k tokens; offload
# > wins for long ones, above 8k."
#
# <details><summary>Answer</summary>
# No length holds for all. With 250 tokens Llama-3-8B fetches over any link of
# {{17 = slowest_link(PUBLISHED["Llama-3-8B"].config, 266, 250, Machine("H100", 989e12 / 2, 0.8 *
# 3.35e12)) / 1e9}} GB/s or more, SmolLM2 with 7,000 needs
# {{26 = slowest_link(PUBLISHED["SmolLM2-135M"].config, 7016, 7000, Machine("H100", 989e12 / 2, 0.8 *
# 3.35e12)) / 1e9}}. From 1,000 tokens on the 8B's line falls little: time saved and bytes
# both grow with the tokens. It bends where the pass is memory-bound, since the weights are read anyway.
# </details>
#
# **Not shown here.** These seconds are calculated: no GPU with host memory behind a link is
# measured here. And an engine can hide fetching behind another request's pass.
#
# ## Check yourself
#
# <details><summary>Why must only leaves go?</summary>
# Nobody can find a block whose parent was forgotten, yet it takes up room. <em>Common wrong answer:</em>
# leaves are the oldest. They may have been used at the same moment as the blocks above them.
# </details>
# <details><summary>A leaf has one owner, the tree. May it go while somebody reads the same
# words?</summary> Yes, if that reader has blocks of its own with these words. <em>Common wrong
# answer:</em> no, one would read what is gone. Whoever reads this very block is an owner.
# </details>
# <details><summary>Does the order of requests change a text?</summary>
# No: it changes only what is computed and found. <em>Common wrong answer:</em> yes, since others' words
# are in the cache. A request adopts only blocks whose words are in its prompt.
# </details>
# <details><summary>A system prompt begins with the date and time. What is spared?</summary>
# Nothing, for the first block differs. <em>Common wrong answer:</em> all but one block. After a different
# past, the keys differ. Put the date last.
# </details>
# <details><summary>Do 1.5 times the blocks give 1.5 times the hits?</summary>
# No: the most requested blocks are already found. <em>Common wrong answer:</em> yes. The lines of section
# 2 flatten.
# </details>
#
# ## Next
#
# vLLM keeps free blocks in a queue until they are taken, SGLang a radix tree with locks: look up how each
# says "in use", and where it evicts. Lesson 16 asks of the weights what 14 asked of the rows: which must
# be read?
