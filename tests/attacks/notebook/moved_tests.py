"""All test cells stand at the very beginning, in another order.

points: 10
start: solved
"""


def submit(notebook, folder):
    graded = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    rest = [c for c in notebook.cells if c not in graded]
    notebook.cells = [*reversed(graded), *rest]
    return notebook
