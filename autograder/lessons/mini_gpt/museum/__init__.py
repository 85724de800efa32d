"""Known wrong answers to lesson 01, by what students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("mini_gpt")
