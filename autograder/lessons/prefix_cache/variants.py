"""Right answers to lesson 15 in other styles: every check must pass them."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict

from autograder.lessons.exhibits import Variant
from course.given.prefixes import check_admission, check_known, check_wait, check_words
from course.minigpt.kv_cache import kv_cache_bytes
from course.minigpt.paged_cache import block_keys
from course.minigpt.roofline import phase_cost
from course.model.bounds import check_between
from course.model.cache import CacheFull

# --- a flat dictionary: a block by all words up to its end ----------------------------------------


class FlatTree:
    def __init__(self, allocator, block_size):
        check_between("block_size", block_size, 1, 2**31)
        self.allocator, self.block_size = allocator, block_size
        self.blocks, self.moments, self.now = {}, {}, 0

    def __len__(self):
        return len(self.blocks)

    def _beginnings(self, tokens):
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [tuple(tokens[:end]) for end in ends]

    def match(self, tokens):
        check_words(tokens, at_least=1)
        found = []
        for beginning in self._beginnings(tokens[:-1]):
            if beginning not in self.blocks:
                return found
            found.append(self.blocks[beginning])
        return found

    def insert(self, tokens, cache):
        check_words(tokens)
        self.now += 1
        before = len(self)
        written = tokens[: len(cache)]
        for block, beginning in zip(cache.table, self._beginnings(written), strict=False):
            if beginning not in self.blocks:
                self.allocator.share([block])
                self.blocks[beginning] = block
            self.moments[beginning] = self.now
        return len(self) - before

    def _can_go(self):
        locked = {b for b in self.blocks if self.allocator.owners(self.blocks[b]) != 1}
        above = {b[:end] for b in locked for end in range(0, len(b) + 1, self.block_size)}
        return [b for b in self.blocks if b not in above]

    def evictable(self):
        return len(self._can_go())

    def evict(self, n):
        check_between("n", n, 0, 2**31)
        # Of one moment, the longest goes first: it hangs below the others.
        order = sorted(self._can_go(), key=lambda b: (self._last_use(b), -len(b)))
        if n > len(order):
            raise CacheFull(f"only {len(order)} can go")
        gone = [self.blocks.pop(b) for b in order[:n]]
        for beginning in order[:n]:
            del self.moments[beginning]
        self.allocator.release(gone)
        return gone

    def _last_use(self, beginning):
        """Nothing below it was used later than itself."""
        return self.moments[beginning]


# --- lesson 10's keys, in an ordered dictionary ---------------------------------------------------


class KeyedTree:
    def __init__(self, allocator, block_size):
        check_between("block_size", block_size, 1, 2**31)
        self.allocator, self.block_size = allocator, block_size
        self.known = OrderedDict()  # key -> (block, key before), the least recently used first

    def __len__(self):
        return len(self.known)

    def match(self, tokens):
        check_words(tokens, at_least=1)
        found = []
        for key in block_keys(tokens[:-1], self.block_size):
            if key not in self.known:
                break
            found.append(self.known[key][0])
        return found

    def insert(self, tokens, cache):
        check_words(tokens)
        keys = block_keys(tokens[: len(cache)], self.block_size)
        new = [n for n, key in enumerate(keys) if key not in self.known]
        for n in new:
            self.allocator.share([cache.table[n]])
            self.known[keys[n]] = (cache.table[n], keys[n - 1] if n else b"")
        for key in reversed(keys):  # so that the last block of a text is the first to go
            self.known.move_to_end(key)
        return len(new)

    def _leaves(self, known):
        parents = {parent for _, parent in known.values()}
        return (
            key
            for key, (block, _) in known.items()
            if key not in parents and self.allocator.owners(block) < 2
        )

    def evictable(self):
        left = OrderedDict(self.known)
        while (leaf := next(self._leaves(left), None)) is not None:
            del left[leaf]
        return len(self.known) - len(left)

    def evict(self, n):
        check_between("n", n, 0, 2**31)
        if self.evictable() < n:
            raise CacheFull("too many are read")
        gone = []
        while len(gone) < n:
            block, _ = self.known.pop(next(self._leaves(self.known)))
            self.allocator.release([block])
            gone.append(block)
        return gone


# --- nested dictionaries, and a heap of leaves ----------------------------------------------------


class HeapTree:
    def __init__(self, allocator, block_size):
        check_between("block_size", block_size, 1, 2**31)
        self.allocator, self.block_size = allocator, block_size
        self.top = {"below": {}}
        self.clock = self.n = 0

    def __len__(self):
        return self.n

    def match(self, tokens):
        check_words(tokens, at_least=1)
        size, level, found = self.block_size, self.top, []
        for number in range((len(tokens) - 1) // size):
            words = tuple(tokens[number * size : number * size + size])
            if words not in level["below"]:
                break
            level = level["below"][words]
            found.append(level["block"])
        return found

    def insert(self, tokens, cache):
        check_words(tokens)
        self.clock += 1
        return self._insert(self.top, list(tokens[: len(cache)]), list(cache.table))

    def _insert(self, level, tokens, table):
        size = self.block_size
        if len(tokens) < size:
            return 0
        words, new = tuple(tokens[:size]), 0
        if words not in level["below"]:
            self.allocator.share(table[:1])
            level["below"][words] = {"block": table[0], "above": level, "words": words, "below": {}}
            self.n, new = self.n + 1, 1
        level["below"][words]["moment"] = self.clock
        return new + self._insert(level["below"][words], tokens[size:], table[1:])

    def _walk(self, level):
        for below in level["below"].values():
            yield from self._walk(below)
            yield below

    def _free(self, level):
        return self.allocator.owners(level["block"]) == 1

    def evictable(self):
        can_go = {}
        for level in self._walk(self.top):
            below = all(can_go[id(other)] for other in level["below"].values())
            can_go[id(level)] = below and self._free(level)
        return sum(can_go.values())

    def evict(self, n):
        check_between("n", n, 0, 2**31)
        if n > self.evictable():
            raise CacheFull(f"{n} are too many")
        heap = [
            (level["moment"], level["block"], level)
            for level in self._walk(self.top)
            if not level["below"] and self._free(level)
        ]
        heapq.heapify(heap)
        gone = []
        for _ in range(n):
            _, block, level = heapq.heappop(heap)
            above = level["above"]
            above["below"].pop(level["words"])
            self.allocator.release([block])
            gone.append(block)
            if above is not self.top and not above["below"] and self._free(above):
                heapq.heappush(heap, (above["moment"], above["block"], above))
        self.n -= n
        return gone


# --- the functions --------------------------------------------------------------------------------


def admit_by_counting_first(tree, cache, prompt, n_new, promised=0):
    """Locks what is known by a share of its own, so that the cache adopts last."""
    check_admission(cache, prompt, n_new, promised)
    allocator, known = tree.allocator, tree.match(prompt)
    allocator.share(known)
    tokens = len(prompt) + n_new - 1
    missing = math.ceil(tokens / tree.block_size) - len(known) + promised - len(allocator)
    try:
        tree.evict(missing if missing > 0 else 0)
    except CacheFull:
        allocator.release(known)
        return None
    cache.adopt(known)
    allocator.release(known)
    return len(known) * tree.block_size


def admit_step_by_step(tree, cache, prompt, n_new, promised=0):
    check_admission(cache, prompt, n_new, promised)
    size = tree.block_size
    blocks = tree.match(prompt)
    cache.adopt(blocks)
    whole = (len(prompt) + n_new - 2) // size + 1
    wanted = whole - len(blocks) + promised
    if wanted > len(tree.allocator) + tree.evictable():
        cache.reset()
        return None
    while len(tree.allocator) < wanted:
        tree.evict(1)
    return size * len(blocks)


def order_by_groups(tree, waiting, now, max_wait):
    check_wait(waiting, max_wait)
    late, groups = [], {}
    for request in waiting:
        if request.arrival < now - max_wait:
            late.append(request)
        else:
            groups.setdefault(len(tree.match(list(request.prompt))), []).append(request)
    return [*late, *(r for known in sorted(groups, reverse=True) for r in groups[known])]


def order_by_one_key(tree, waiting, now, max_wait):
    check_wait(waiting, max_wait)

    def rank(request):
        is_late = now - request.arrival > max_wait
        return (0, 0) if is_late else (1, -len(tree.match(list(request.prompt))))

    return sorted(waiting, key=rank)


def order_by_inserting(tree, waiting, now, max_wait):
    check_wait(waiting, max_wait)
    known = [len(tree.match([*request.prompt])) for request in waiting]
    is_late = [now - request.arrival > max_wait for request in waiting]
    places = sorted(
        range(len(waiting)), key=lambda n: (not is_late[n], -known[n] * (not is_late[n]))
    )
    return [waiting[place] for place in places]


def link_by_a_helper(config, n_prompt, n_known, machine, bytes_per_element=2):
    check_known(n_prompt, n_known)

    def seconds(n_new, n_past):
        cost = phase_cost(config, n_new, n_past, 1, bytes_per_element)
        if cost.intensity > machine.balance:
            return cost.flops / machine.flops_per_second
        return cost.bytes / machine.bytes_per_second

    spared = seconds(n_prompt, 0) - seconds(n_prompt - n_known, n_known)
    if spared <= 0:
        return float("inf")
    return kv_cache_bytes(config, n_known, 1, bytes_per_element) / spared


def link_written_out(config, n_prompt, n_known, machine, bytes_per_element=2):
    check_known(n_prompt, n_known)
    whole = phase_cost(config, n_prompt, 0, bytes_per_element=bytes_per_element)
    rest = phase_cost(config, n_prompt - n_known, n_known, bytes_per_element=bytes_per_element)
    rates = machine.flops_per_second, machine.bytes_per_second
    first, second = (max(c.flops / rates[0], c.bytes / rates[1]) for c in (whole, rest))
    row = 2 * config.n_layers * config.n_kv_heads * config.head_dim * bytes_per_element
    return n_known * row / (first - second) if first > second else math.inf


def _variant(name, *functions):
    asked = ("PrefixTree", "admit", "order_by_prefix", "slowest_link")
    return Variant(name, dict(zip(asked, functions, strict=True)))


VARIANTS = [
    _variant("flat", FlatTree, admit_by_counting_first, order_by_groups, link_by_a_helper),
    _variant("keys", KeyedTree, admit_step_by_step, order_by_one_key, link_written_out),
    _variant("heap", HeapTree, admit_by_counting_first, order_by_inserting, link_by_a_helper),
    Variant("mixed", {"PrefixTree": FlatTree, "admit": admit_step_by_step}),
    Variant("keys alone", {"PrefixTree": KeyedTree}),
]
