"""Honest work, saved by a notebook program of ten years ago.

points: 10
start: solved
"""

import json


def submit(notebook, folder):
    cells = [
        {"cell_type": "code", "language": "python", "outputs": [], "input": cell.source}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}}
    return json.dumps({**old, "worksheets": [{"cells": cells, "metadata": {}}]}).encode()
