"""Known wrong answers to lesson 15, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("prefix_cache")
