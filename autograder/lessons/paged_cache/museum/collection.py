"""The collection to which the files of this folder add their wrong answers."""

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("paged_cache")
