"""The work of another lesson, under the name of this one.

points: 0
state: STUDENT_FAULT
says: this is the notebook of lesson 02
"""

import nbformat

from lessons import ROOT


def submit(notebook, folder):
    another = nbformat.read(ROOT / "lessons" / "02-naive-decode" / "naive_decode.ipynb", 4)
    another.cells = [c for c in another.cells if "nbgrader" in c.metadata or c.cell_type != "code"]
    return another
