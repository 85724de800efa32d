"""The test cells are tagged so that they are not run, or so that what they raise is no error.

points: 0
"""


def submit(notebook, folder):
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata["tags"] = ["skip-execution", "raises-exception", "nbgrader-skip"]
            cell.metadata["collapsed"] = cell.metadata["editable"] = True
    return notebook
