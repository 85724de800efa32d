"""Known wrong answers to lesson 03, by what students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("kv_cache")
