"""JSON, but of something else.

points: 0
state: STUDENT_FAULT
says: no list of cells
"""


def submit(notebook, folder):
    return b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": "none"}'
