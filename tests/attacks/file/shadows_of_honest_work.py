"""Honest work beside files that have the names of what it imports: old tries, and a helper.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell


def submit(notebook, folder):
    for name in ("torch", "numpy", "course", "random", "start"):
        (folder / f"{name}.py").write_text("raise SystemExit('an old try')")
    (folder / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    notebook.cells.append(new_code_cell("import helper, torch\nassert helper.double(2) == 4"))
    return notebook
