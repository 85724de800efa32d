"""Known wrong answers to lesson 05, a file a function."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("roofline")
