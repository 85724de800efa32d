"""JSON that is so deep that whoever reads it falls in.

points: 0
state: STUDENT_FAULT
says: not a notebook
"""


def submit(notebook, folder):
    return b'{"cells": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
