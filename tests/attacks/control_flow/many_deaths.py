"""Cell after cell ends the process: nothing is left that could be judged.

points: 0
start: solved
state: STUDENT_FAULT
stops: left out
"""

from nbformat.v4 import new_code_cell


def submit(notebook, folder):
    notebook.cells += [new_code_cell(f"import os; os._exit({n})") for n in range(20)]
    return notebook
