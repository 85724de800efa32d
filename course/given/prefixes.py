"""What lesson 15 is given: the nodes of a tree of prefixes, checks of arguments, and caches on paper.

A cache on paper is lesson 10's cache without numbers: in the place of keys and values, a block of its
pool holds the words that were written there. So anybody can read whose words a block holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from course.model.bounds import check_between
from course.serving.request import Request

LARGEST = 2**31


@dataclass(eq=False)
class Node:
    """A block in a tree of prefixes, below the words that stand before it.

    Attributes:
        block: its number in the pool; -1 of the root, which is none.
        words: its tokens, as many as a block holds.
        parent: the node of the block before; None of the root.
        used: when it was used last, as a number that only rises.
        children: the blocks that follow, by their words.
    """

    block: int = -1
    words: tuple[int, ...] = ()
    parent: Node | None = None
    used: int = 0
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)


def nodes_below(node: Node) -> Iterator[Node]:
    """Yield all nodes below a node, parents before their children."""
    left = list(node.children.values())
    while left:
        yield (child := left.pop())
        left += child.children.values()


# --- the checks of arguments ---------------------------------------------------------------------


def check_words(tokens: Sequence[int], at_least: int = 0) -> None:
    """Check that tokens are a list of `at_least` or more whole numbers from 0 on."""
    if not isinstance(tokens, list):
        raise ValueError(f"tokens must be a list of whole numbers, got {type(tokens).__name__}")
    if len(tokens) < at_least:
        raise ValueError(f"tokens must be at least {at_least}, got {len(tokens)}")
    for token in tokens:
        check_between("token", token, 0, LARGEST)


def check_admission(cache: Any, prompt: Sequence[int], n_new: int, promised: int) -> None:
    """Check that a cache is empty, that a request is one, and how many blocks others were promised."""
    check_between("tokens held", len(cache), 0, 0)
    check_words(prompt, at_least=1)
    check_between("n_new", n_new, 1, LARGEST)
    check_between("promised", promised, 0, LARGEST)


def check_wait(waiting: Sequence[Request], max_wait: float) -> None:
    """Check that the waiting requests have not begun, and that the longest wait is 0 or more."""
    for request in waiting:
        check_between(f"fed of request {request.id}", request.fed, 0, 0)
    if not max_wait >= 0:
        raise ValueError(f"max_wait must be 0 or more, got {max_wait}")


def check_known(n_prompt: int, n_known: int) -> None:
    """Check that of a prompt some tokens are known, and not all."""
    check_between("n_prompt", n_prompt, 2, LARGEST)
    check_between("n_known", n_known, 1, n_prompt - 1)


# --- caches on paper -----------------------------------------------------------------------------


class PaperPool:
    """Blocks that hold words.

    Args:
        allocator: lesson 10's, of all blocks.
        block_size: words of a block.

    Attributes:
        words: the words that were last written into each block, by its number.
    """

    def __init__(self, allocator: Any, block_size: int) -> None:
        self.allocator, self.block_size = allocator, block_size
        self.n_blocks = allocator.n_blocks
        self.words: dict[int, list[int]] = {}


class PaperCache:
    """The words of one text in blocks of a pool, as lesson 10's cache keeps its rows.

    Attributes:
        table: numbers of its blocks, in the order of the text.
    """

    def __init__(self, pool: PaperPool) -> None:
        self.pool = pool
        self.table: list[int] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def write(self, tokens: Sequence[int]) -> None:
        """Write words behind those that are held, into blocks of its own.

        Raises:
            CacheFull: too few blocks are free; nothing changed.
        """
        size, end = self.pool.block_size, len(self) + len(tokens)
        self.table += self.pool.allocator.allocate(-(-end // size) - len(self.table))
        for place, token in enumerate(tokens, len(self)):
            block = self.table[place // size]
            if place % size == 0:
                self.pool.words[block] = []
            self.pool.words[block].append(token)
        self._length = end

    def adopt(self, blocks: Sequence[int]) -> None:
        """Begin with the words of these blocks, all full, which get one owner more."""
        check_between("tokens held", len(self), 0, 0)
        self.pool.allocator.share(list(blocks))
        self.table, self._length = list(blocks), len(blocks) * self.pool.block_size

    def read(self) -> list[int]:
        """Return the words that its blocks hold now."""
        return [word for block in self.table for word in self.pool.words[block]][: len(self)]

    def reset(self) -> None:
        """Forget every word, and release all blocks."""
        self.pool.allocator.release(self.table)
        self.table, self._length = [], 0
