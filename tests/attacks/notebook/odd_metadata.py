"""Metadata of every wrong type, wherever a program may look for some.

points: 10
start: solved
"""


def submit(notebook, folder):
    odd = [None, 3, "text", ["list"], {"nbgrader": None}, {"nbgrader": [1]}, {"tags": 5}]
    for number, cell in enumerate(notebook.cells):
        cell["metadata"] = {"nbgrader": odd[number % len(odd)], "tags": odd[number % 4]}
    notebook["metadata"] = {"kernelspec": "python", "nbgrader": 7, "language_info": []}
    return notebook
