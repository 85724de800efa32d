"""Known wrong answers to lesson 10, a file a function; two for the cache."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("paged_cache")
