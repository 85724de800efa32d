"""Nothing was written, and the test cells are text: what is not run does not fail.

points: 0
"""


def submit(notebook, folder):
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.cell_type = cell.metadata["nbgrader"]["cell_type"] = "markdown"
            del cell["outputs"], cell["execution_count"]
    return notebook
