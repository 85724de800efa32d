"""Honest work that went through an editor which keeps no metadata and gives new ids.

points: 10
start: solved
"""


def submit(notebook, folder):
    for number, cell in enumerate(notebook.cells):
        cell.metadata = {}
        cell.id = f"cell-{number}"
    notebook.metadata = {}
    return notebook
