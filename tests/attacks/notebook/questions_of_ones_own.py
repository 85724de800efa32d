"""Questions of the student's own, easy ones, with a hundred points each.

points: 0
"""

from nbformat.v4 import new_code_cell


def submit(notebook, folder):
    for name in ("easy", "easier"):
        nbgrader = {"grade": True, "grade_id": name, "locked": True, "points": 100}
        nbgrader |= {"schema_version": 3, "solution": False, "task": False, "cell_type": "code"}
        notebook.cells.append(new_code_cell("100.0", id=name, metadata={"nbgrader": nbgrader}))
    return notebook
