"""Honest work under another name, as browsers name a second download.

points: 0
start: solved
state: STUDENT_FAULT
says: there is no start.ipynb
"""

import nbformat


def submit(notebook, folder):
    nbformat.write(notebook, folder / "start (1).ipynb")
