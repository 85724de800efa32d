"""A notebook of 90 MB of empty lists.

points: 0
state: STUDENT_FAULT
says: more numbers and lists than the judge reads
"""


def submit(notebook, folder):
    return b'{"metadata": {}, "cells": [' + b"[]," * (30 * 2**20) + b"[]]}"
