"""Second Token: what the lessons import.

Start at `course.model` (the mini-GPT), `course.minigpt` (what the lessons build, one module a
lesson) and `course.checks` (the checks that a student runs).
"""
