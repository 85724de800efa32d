"""The cheapest wrong functions for the checks of lesson 15, see `autograder cheapest`."""


class EmptyTree:
    def __init__(self, allocator, block_size):
        self.offered, self.size = 0, block_size

    def __len__(self):
        return self.offered

    def match(self, tokens):
        return []

    def insert(self, tokens, cache):
        return 0

    def evictable(self):
        return 0

    def evict(self, n):
        return []


# %% finds_the_longest_beginning: lesson 10's keys, offered without an owner
from course.minigpt.paged_cache import block_keys, reusable_blocks


class PrefixTree(EmptyTree):
    def __init__(self, allocator, block_size):
        self.known, self.size = {}, block_size

    def __len__(self):
        return len(self.known)

    def match(self, tokens):
        return reusable_blocks(tokens, self.size, self.known)

    def insert(self, tokens, cache):
        before = len(self)
        for key, block in zip(block_keys(tokens, self.size), cache.table, strict=False):
            self.known.setdefault(key, block)
        return len(self) - before

    def evictable(self):
        return len(self.known)


# %% collisions_are_no_hits: nothing is ever found
class PrefixTree(EmptyTree):
    pass


# %% offers_what_is_written: a count of what is full
class PrefixTree(EmptyTree):
    def insert(self, tokens, cache):
        self.offered += min(len(tokens), len(cache)) // self.size
        return min(len(tokens), len(cache)) // self.size


# %% whose_words: nothing is ever offered
class PrefixTree(EmptyTree):
    pass


# %% oldest_leaves_first: nothing is ever forgotten
class PrefixTree(EmptyTree):
    pass


# %% counts_what_can_go: nothing can go
class PrefixTree(EmptyTree):
    def evict(self, n):
        raise CacheFull("nothing")


# %% admits_or_changes_nothing: everybody may start
def admit(tree, cache, prompt, n_new, promised=0):
    return 0


# %% known_first_late_before_all: the queue as it is
def order_by_prefix(tree, waiting, now, max_wait):
    return list(waiting)


# %% dearer_than_computing: infinity
def slowest_link(config, n_prompt, n_known, machine, bytes_per_element=2):
    return math.inf
