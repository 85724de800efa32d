"""Scripts and forms in text, in outputs and in names, for whoever opens the feedback.

points: 10
start: solved
"""

from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

SCRIPT = "<script>fetch('/formgrader/api/grades')</script><img src=x onerror=alert(1)>"


def submit(notebook, folder):
    data = {"text/html": SCRIPT, "application/javascript": "alert(1)", "image/svg+xml": SCRIPT}
    notebook.cells.append(new_markdown_cell(SCRIPT + "[click](javascript:alert(1))"))
    notebook.cells.append(new_code_cell("1", outputs=[new_output("display_data", data)]))
    notebook.metadata["title"] = SCRIPT
    return notebook
