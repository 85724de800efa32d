"""A number with more digits than Python reads.

points: 0
start: solved
state: STUDENT_FAULT
says: not a notebook
"""

import nbformat


def submit(notebook, folder):
    text = nbformat.writes(notebook)
    return text.replace('"nbformat_minor": 5', f'"nbformat_minor": {"5" * 10_000}').encode()
