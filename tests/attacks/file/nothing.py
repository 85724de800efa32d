"""An empty folder was handed in.

points: 0
state: STUDENT_FAULT
says: there is no start.ipynb
"""


def submit(notebook, folder):
    return None
