"""Honest work, and files beside it whose names are hard to print and to pass on.

points: 10
start: solved
"""


def submit(notebook, folder):
    for name in ("-rf", "a b", "$(id)", "'\"", "line\nline", "\u202egpj.py", "é" * 80, "CON", "*"):
        (folder / name).write_text("x")
    (folder / "not-utf8-").with_name("x").write_text("x")
    return notebook
