"""Known wrong answers to lesson 04, a file for each function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("prefill_and_decode")
