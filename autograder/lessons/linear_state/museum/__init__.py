"""Known wrong answers to lesson 17, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("linear_state")
