"""The collection of lesson 02, to which the files beside add."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("naive_decode")
