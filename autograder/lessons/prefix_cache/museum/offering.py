"""Known wrong answers to lesson 15: blocks that are found by too little of what stands before them."""

from __future__ import annotations

from autograder.lessons.prefix_cache.museum import MUSEUM
from course.given.prefixes import Node
from course.minigpt import prefix_cache as right

bug = MUSEUM.section("PrefixTree", check="whose_words")


@bug("wiring", "blocks found by their words and those of the block before, and no more of the past")
class KnowsTwoBlocks(right.PrefixTree):
    """A key of a block: its number in the text, and the words of two blocks. Enough for short texts."""

    def __init__(self, allocator, block_size):
        super().__init__(allocator, block_size)
        self.nodes = {}

    def keys(self, tokens):
        size = self.block_size
        cut = [tuple(tokens[a : a + size]) for a in range(0, len(tokens) // size * size, size)]
        return [(n, cut[n - 1] if n else (), words) for n, words in enumerate(cut)]

    def match(self, tokens):
        found = []
        for key in self.keys(tokens[:-1]):
            if key not in self.nodes:
                break
            found.append(self.nodes[key].block)
        return found

    def insert(self, tokens, cache):
        self.moment += 1
        node, n_before = self.root, len(self.nodes)
        for number, key in enumerate(self.keys(tokens[: len(cache)])):
            if key not in self.nodes:
                self.allocator.share([cache.table[number]])
                child = Node(cache.table[number], key[2], node)
                self.nodes[key] = node.children[key[2]] = child
            node = self.nodes[key]
            node.used = self.moment
        return len(self.nodes) - n_before

    def evict(self, n):
        gone = super().evict(n)
        self.nodes = {key: node for key, node in self.nodes.items() if node.block not in gone}
        return gone
