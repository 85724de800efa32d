"""Known wrong answers to lesson 02, by what students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("naive_decode")
