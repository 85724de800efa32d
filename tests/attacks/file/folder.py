"""A folder of the right name, with the work in it.

points: 0
state: STUDENT_FAULT
says: start.ipynb
"""

import nbformat


def submit(notebook, folder):
    (folder / "start.ipynb").mkdir()
    nbformat.write(notebook, folder / "start.ipynb" / "start.ipynb")
