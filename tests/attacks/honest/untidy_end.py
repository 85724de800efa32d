"""The last cells fail, ask a question, leave by exit, and close the output.

points: 10
start: solved
"""

import nbformat
from nbformat.v4 import new_code_cell

CELLS = ["undefined", "input('your name? ')", "exit", "quit()", "import sys; sys.exit()"]
CELLS += ["import sys\nsys.stdout.close()", "del sys.modules['torch']"]


def submit(notebook, folder):
    notebook.cells += [new_code_cell(source) for source in CELLS]
    return nbformat.writes(notebook).encode()  # as it is, with all this behind the tests
