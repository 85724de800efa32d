"""Honest work, saved in UTF-16.

points: 0
start: solved
state: STUDENT_FAULT
says: not UTF-8
"""

import nbformat


def submit(notebook, folder):
    return nbformat.writes(notebook).encode("utf-16")
