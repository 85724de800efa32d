"""The museum that the wrong answers of lesson 05 stand in."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("roofline")
