"""Honest work with metadata ten thousand levels deep.

points: at most 10
start: solved
state: STUDENT_FAULT
says: not a notebook
"""

import nbformat


def submit(notebook, folder):
    text = nbformat.writes(notebook)
    return text.replace(
        '"metadata": {', '"metadata": {"deep": ' + "[" * 9_999 + "]" * 9_999 + ",", 1
    ).encode()
