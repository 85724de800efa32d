"""Honest work without the ids that newer notebooks have.

points: 10
start: solved
"""

import json

import nbformat


def submit(notebook, folder):
    plain = json.loads(nbformat.writes(notebook))
    for cell in plain["cells"]:
        del cell["id"]
    return json.dumps({**plain, "nbformat_minor": 2}).encode()
