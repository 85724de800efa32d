"""A test cell that is passed is copied ten times, so that it counts ten times.

points: 7
start: solved
"""

import copy


def submit(notebook, folder):
    graded = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    for number in range(10):
        another = copy.deepcopy(graded[0])
        another.id = another.metadata["nbgrader"]["grade_id"] = f"another_{number}"
        notebook.cells.append(another)
    for cell in notebook.cells:
        if cell.id == "matmul_bytes":
            cell.source = "def matmul_bytes(*_):\n    return 0"
    return notebook
