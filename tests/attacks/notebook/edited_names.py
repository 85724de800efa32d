"""The questions have swapped their names, and one has the name of an answer.

points: 10
start: solved
"""


def submit(notebook, folder):
    cells = [cell.metadata["nbgrader"] for cell in notebook.cells if "nbgrader" in cell.metadata]
    names = [cell["grade_id"] for cell in cells]
    for cell, name in zip(cells, [*names[1:], names[0]], strict=True):
        cell["grade_id"] = name
    return notebook
