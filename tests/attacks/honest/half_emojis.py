"""Half an emoji in what is printed, raised, shown and written: in code, text and outputs.

points: 10
start: solved
stops: ValueError
"""

import json

import nbformat
from attacks.attack import with_tests_last
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output


def submit(notebook, folder):
    half = "HALF"
    notebook.cells += [
        new_code_cell(f"x = '{half}'\nprint(x)", outputs=[new_output("stream", text=half)]),
        new_code_cell("print('\\ud83d')\n'\\ud83d'"),
        new_code_cell("raise ValueError('\\ud83d')"),
        new_markdown_cell(f"# {half}\n\n<b title='{half}'>{half}</b>"),
    ]
    for cell in notebook.cells:
        if cell.cell_type == "code" and "def matmul_flops" in cell.source:
            cell.source += f"\n    # {half}"
    return (
        nbformat.writes(with_tests_last(notebook))
        .replace(half, json.dumps("\ud83d")[1:-1])
        .encode()
    )
