"""The pool of an engine: who may begin, and which prompts' pages are kept for others."""

from __future__ import annotations

from collections.abc import Iterable

from course.minigpt.paged_cache import BlockPool, PagedKVCache, block_keys, reusable_blocks
from course.model import MiniGPT
from course.serving.request import Request

Running = tuple[Request, PagedKVCache]


class Memory:
    """Blocks for conversations, and known blocks of earlier prompts for those who begin alike.

    Args:
        model: whose sizes, dtype and device the pool has.
        n_blocks, block_size: of the pool.

    Attributes:
        known: blocks of prompts by what they hold (`block_keys`); one of their owners is this memory.
    """

    def __init__(self, model: MiniGPT, n_blocks: int, block_size: int) -> None:
        weight = model.embed.weight
        self.pool = BlockPool(model.config, n_blocks, block_size, weight.dtype, weight.device)
        self.known: dict[bytes, int] = {}

    def check(self, request: Request) -> None:
        """Check that the pool can ever hold a conversation; a ValueError says what it needs."""
        if (needed := self.needed(request)) > self.pool.n_blocks:
            raise ValueError(
                f"{len(request.prompt)} tokens and {request.n_new} new ones need {needed} blocks of "
                f"{self.pool.block_size}; the whole pool has {self.pool.n_blocks}"
            )

    def needed(self, request: Request) -> int:
        """Blocks that a conversation takes in the end: its last token is never fed."""
        return -(-(len(request.prompt) + request.n_new - 1) // self.pool.block_size)

    def admit(self, request: Request, running: Iterable[Running]) -> PagedKVCache | None:
        """Give a conversation a cache, with what is known of its prompt. None, and it waits, where the
        pool has no room for all of its text beside what was promised to those that run, or where one of
        them begins alike and its prompt is under way: soon more is known."""
        size, running = self.pool.block_size, list(running)
        cache = PagedKVCache(self.pool)
        cache.adopt(reusable_blocks(list(request.prompt), size, self.known))
        begin = list(request.prompt[:size])
        alike = (
            list(other.prompt[:size]) == begin and not other.decodes and len(begin) == size
            for other, _ in running
        )
        promised = sum(self.needed(other) - len(its.table) for other, its in running)
        waits = not cache.table and any(alike)
        if not waits and self.make_room(promised + self.needed(request) - len(cache.table)):
            return cache
        cache.reset()
        return None

    def make_room(self, n: int) -> bool:
        """Forget known blocks that nobody reads, oldest first, until n are free, if that is possible."""
        allocator = self.pool.allocator
        for key, block in list(self.known.items()):
            if len(allocator) >= n:
                break
            if allocator.owners(block) == 1:
                allocator.release([self.known.pop(key)])
        return len(allocator) >= n

    def remember(self, request: Request, cache: PagedKVCache) -> None:
        """Keep the full blocks of a prompt, as far as it was fed."""
        held = list(request.prompt[: len(cache)])
        for key, block in zip(block_keys(held, self.pool.block_size), cache.table, strict=False):
            if key not in self.known:
                self.pool.allocator.share([block])
                self.known[key] = block
