"""A copy of an answer cell, with its name, in which the first try was kept; the last one counts.

points: 10
start: solved
"""

import copy


def submit(notebook, folder):
    at = next(
        n for n, c in enumerate(notebook.cells) if c.metadata.get("nbgrader", {}).get("solution")
    )
    first_try = copy.deepcopy(notebook.cells[at])
    first_try.source = "def matmul_flops(m, k, n):\n    return m + k + n"
    notebook.cells.insert(at, first_try)
    return notebook
