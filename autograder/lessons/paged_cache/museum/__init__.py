"""Known wrong answers to lesson 10, a file a function; two for the cache."""

from autograder.lessons.paged_cache.museum import allocator, cache, forks, prefixes
from autograder.lessons.paged_cache.museum.collection import MUSEUM

__all__ = ["MUSEUM", "allocator", "cache", "forks", "prefixes"]
