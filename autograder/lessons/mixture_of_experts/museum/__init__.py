"""Known wrong answers to lesson 16, by the function that students write."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("mixture_of_experts")
