"""Numbers that JSON does not have, and one that is longer than Python reads.

points: 10
start: solved
"""

import nbformat


def submit(notebook, folder):
    text = nbformat.writes(notebook)
    odd = '{"a": NaN, "b": -Infinity, "c": 1e999999, "a": 1}'
    return text.replace('"metadata": {}', f'"metadata": {odd}', 1).encode()
