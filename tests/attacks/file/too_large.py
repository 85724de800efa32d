"""A file of a gigabyte, almost all of it a hole.

points: 0
state: STUDENT_FAULT
says: are read at most
"""


def submit(notebook, folder):
    with open(folder / "start.ipynb", "wb") as file:
        file.truncate(2**30)
