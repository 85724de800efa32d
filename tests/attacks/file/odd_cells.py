"""Between the honest cells are things that are no cells.

points: 10
start: solved
"""

import json

import nbformat


def submit(notebook, folder):
    plain = json.loads(nbformat.writes(notebook))
    odd = [None, 3, "cell", [], {}, {"cell_type": 7}, {"cell_type": "code", "source": {"a": 1}}]
    odd += [{"cell_type": "code", "source": [1, None, "x = 1"]}, {"cell_type": "heading"}]
    plain["cells"] = [
        thing for cell in plain["cells"] for thing in (cell, odd[len(cell) % 9])
    ] + odd
    return json.dumps(plain).encode()
