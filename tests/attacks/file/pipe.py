"""A pipe of the right name: whoever reads it waits for ever.

points: 0
state: STUDENT_FAULT
says: not a regular file
"""

import os


def submit(notebook, folder):
    os.mkfifo(folder / "start.ipynb")
