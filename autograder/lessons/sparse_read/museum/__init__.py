"""Known wrong answers to lesson 14, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("sparse_read")
