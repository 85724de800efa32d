"""Known wrong answers to lesson 06, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("gqa")
