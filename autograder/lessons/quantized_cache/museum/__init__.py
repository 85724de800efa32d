"""Known wrong answers to lesson 07, a file a function; two for the cache."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("quantized_cache")
