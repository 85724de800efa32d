"""Known wrong answers to lesson 11."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("serving")
