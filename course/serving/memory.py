"""The memory of an engine: which requests may start, and which prompts' blocks are kept for others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from course.minigpt.paged_cache import BlockPool, PagedKVCache, block_keys, reusable_blocks
from course.model import MiniGPT
from course.serving.request import Request

Running = tuple[Request, PagedKVCache]


class Memory:
    """A pool of blocks, with an index of the prompts whose blocks another request can reuse.

    Args:
        model: the pool takes its sizes, dtype and device.
        n_blocks, block_size: the sizes of the pool.

    Attributes:
        known: the blocks of earlier prompts by `block_keys`, the first to be forgotten first; this memory
            is one of their owners.
    """

    def __init__(self, model: MiniGPT, n_blocks: int, block_size: int) -> None:
        weight = model.embed.weight
        self.pool = BlockPool(model.config, n_blocks, block_size, weight.dtype, weight.device)
        self.known: OrderedDict[bytes, int] = OrderedDict()

    def check(self, request: Request) -> None:
        """Check that the pool can ever hold a request; a ValueError says what it needs."""
        if (needed := self.blocks_needed(request)) > self.pool.n_blocks:
            raise ValueError(
                f"{len(request.prompt)} tokens and {request.n_new} new ones need {needed} blocks of "
                f"{self.pool.block_size}; the whole pool has {self.pool.n_blocks}"
            )

    def blocks_needed(self, request: Request) -> int:
        """Return how many blocks a request takes in the end; its last token is never fed."""
        return -(-(len(request.prompt) + request.n_new - 1) // self.pool.block_size)

    def admit(self, request: Request, running: Iterable[Running]) -> PagedKVCache | None:
        """Return a cache for a request, with the known blocks of its prompt, or None if it must wait.

        * Every running request is promised the blocks for its whole text.
        * A request waits while the pool lacks room for its whole text beside those promises.
        * It waits while another request feeds a prompt with the same first block, unless that block is
          known: soon it can be reused.
        """
        size, running = self.pool.block_size, list(running)
        cache = PagedKVCache(self.pool)
        cache.adopt(reusable_blocks(list(request.prompt), size, self.known))
        first = list(request.prompt[:size])
        same_prompt_is_fed = len(first) == size and any(
            list(other.prompt[:size]) == first and not other.decodes for other, _ in running
        )
        promised = sum(self.blocks_needed(r) - len(its.table) for r, its in running)
        missing = self.blocks_needed(request) - len(cache.table)
        if (cache.table or not same_prompt_is_fed) and self.make_room(promised + missing):
            return cache
        cache.reset()
        return None

    def make_room(self, n: int) -> bool:
        """Forget known blocks that no request uses until n are free; tell if they are.

        Those go first that were used least recently, and of one text the last block: what hangs behind a
        forgotten one is found by nobody.
        """
        allocator = self.pool.allocator
        for key, block in list(self.known.items()):
            if len(allocator) >= n:
                break
            if allocator.owners(block) == 1:
                allocator.release([self.known.pop(key)])
        return len(allocator) >= n

    def remember(self, request: Request, cache: PagedKVCache) -> None:
        """Add the full blocks of a request, as far as it was fed, to `known`: its prompt's, and its
        answer's, which the next turn of a conversation repeats."""
        fed = [*request.prompt, *request.out][: len(cache)]
        keys = block_keys(fed, self.pool.block_size)
        for key, block in zip(keys, cache.table, strict=False):
            if key not in self.known:
                self.pool.allocator.share([block])
                self.known[key] = block
        for key in reversed(keys):
            self.known.move_to_end(key)
