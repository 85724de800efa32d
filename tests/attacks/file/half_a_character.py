"""Cells with half a character, with a NUL, and with line ends of every kind.

points: 10
start: solved
stops: Cell
"""

import nbformat
from attacks.attack import with_tests_last
from nbformat.v4 import new_code_cell


def submit(notebook, folder):
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")
    notebook.cells.append(new_code_cell("x = 'HALF'\n"))
    notebook.cells.append(new_code_cell("y = 'a\0b'\n"))
    return nbformat.writes(with_tests_last(notebook)).replace("HALF", "\\ud800").encode()
