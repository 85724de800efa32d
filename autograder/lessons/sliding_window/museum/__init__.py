"""Known wrong answers to lesson 08, by what students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("sliding_window")
