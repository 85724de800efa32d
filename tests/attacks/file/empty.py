"""Nothing but a name.

points: 0
state: STUDENT_FAULT
says: not a notebook
"""


def submit(notebook, folder):
    return b""
