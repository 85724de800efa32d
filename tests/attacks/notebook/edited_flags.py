"""Tests are no tests any more, answers are locked tests, and everything needs no grade.

points: 10
start: solved
"""


def submit(notebook, folder):
    for cell in notebook.cells:
        if nbgrader := cell.metadata.get("nbgrader"):
            nbgrader["grade"], nbgrader["solution"] = nbgrader["solution"], nbgrader["grade"]
            nbgrader["locked"] = not nbgrader["locked"]
            nbgrader["task"], nbgrader["schema_version"] = True, 1
    return notebook
