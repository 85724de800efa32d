"""Sixty megabytes of output that are stored in the file.

points: 10
start: solved
"""

from nbformat.v4 import new_output


def submit(notebook, folder):
    cell = next(c for c in notebook.cells if c.cell_type == "code")
    cell.outputs = [new_output("stream", text="x" * 2**20 + "\n") for _ in range(60)]
    return notebook
