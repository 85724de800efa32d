"""The upload stopped in the middle of the file.

points: 0
start: solved
state: STUDENT_FAULT
says: not a notebook
"""

import nbformat


def submit(notebook, folder):
    data = nbformat.writes(notebook).encode()
    return data[: len(data) // 2]
