"""The collection of lesson 03, to which the files beside add."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("kv_cache")
