"""Where the wrong answers to lesson 11 are collected."""

from __future__ import annotations

from autograder.lessons.exhibits import Museum

MUSEUM = Museum("serving")
