"""A module beside the notebook that never finishes being imported.

points: 10
start: solved
stops: the time limit of
"""

from nbformat.v4 import new_code_cell


def submit(notebook, folder):
    (folder / "helper.py").write_text("import time\ntime.sleep(3600)\n")
    notebook.cells.append(new_code_cell("import helper"))
    return notebook
