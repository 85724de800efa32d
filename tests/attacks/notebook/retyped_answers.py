"""The answers are there to read, in cells of text. They were not run, and they are not run.

points: 0
start: solved
says: There is no matmul_flops
"""


def submit(notebook, folder):
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.cell_type = "markdown"
            del cell["outputs"], cell["execution_count"]
    return notebook
