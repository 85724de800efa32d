"""Every test cell twice, as copy and paste leaves them: with the same names.

points: 10
start: solved
"""

import copy


def submit(notebook, folder):
    notebook.cells += copy.deepcopy([c for c in notebook.cells if "nbgrader" in c.metadata])
    return notebook
