"""Known wrong answers to lesson 09, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("split_read")
