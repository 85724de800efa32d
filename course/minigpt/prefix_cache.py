"""Lesson 15: Keep, forget or fetch?.

Built from solutions/15-prefix-cache/prefix_cache.py by `make build`: change it there.
"""

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
        self.root, self.moment = Node(), 0

    def __len__(self) -> int:
        """Blocks that are offered."""
        return sum(1 for _ in nodes_below(self.root))

    def match(self, tokens: list[int]) -> list[int]:
        """Numbers of the known blocks with which a text begins, as many as there are, in a list that the
        caller may change; at least one token is left to feed. Owners and moments of use stay as they
        are."""
        check_words(tokens, at_least=1)
        node, found, size = self.root, [], self.block_size
        for end in range(size, len(tokens), size):
            node = node.children.get(tuple(tokens[end - size : end]))
            if node is None:
                break
            found.append(node.block)
        return found

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

    def evictable(self) -> int:
        """Blocks that could be evicted, one after the other: those that have no owner but the tree, and
        below which no other has one either."""
        held, n = set(), 0
        for node in reversed(list(nodes_below(self.root))):  # children before their parents
            if node in held or self.allocator.owners(node.block) > 1:
                held.add(node.parent)
            else:
                n += 1
        return n

    def evict(self, n: int) -> list[int]:
        """Forget and release n blocks; return their numbers, in the order in which they went.

        n times, of the leaves that only the tree owns, the one goes that was used least recently; then
        its parent may be a leaf.

        Raises:
            CacheFull: n is more than `evictable()`; nothing is changed.
        """
        check_between("n", n, 0, 2**31)
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
    cache.adopt(tree.match(prompt))
    needed = -(-(len(prompt) + n_new - 1) // tree.block_size) - len(cache.table)
    missing = max(0, needed + promised - len(tree.allocator))
    if missing > tree.evictable():
        cache.reset()
        return None
    tree.evict(missing)
    return len(cache)


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
    late = [request for request in waiting if now - request.arrival > max_wait]
    others = [request for request in waiting if not now - request.arrival > max_wait]
    return late + sorted(others, key=lambda request: -len(tree.match(list(request.prompt))))


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
    seconds = []
    for n_new, n_past in ((n_prompt, 0), (n_prompt - n_known, n_known)):
        cost = phase_cost(config, n_new, n_past, bytes_per_element=bytes_per_element)
        computing = cost.flops / machine.flops_per_second
        seconds.append(max(computing, cost.bytes / machine.bytes_per_second))
    spared = seconds[0] - seconds[1]
    n_bytes = kv_cache_bytes(config, n_known, bytes_per_element=bytes_per_element)
    return n_bytes / spared
