"""A file of the right name, and links beside it to the gradebook, to a home, to everything.

points: 0
says: looked
"""

from nbformat.v4 import new_code_cell

LOOK = """
from pathlib import Path
for path in sorted(Path("/submission").glob("link-*")):
    try:
        print("GOT", path, path.read_bytes()[:200])
    except OSError:
        print("no way through", path)
print("looked at", [path.name for path in Path("/submission").iterdir()])
"""


def submit(notebook, folder):
    facts = {}
    exec(next(c.source for c in notebook.cells if c.source.startswith("FACTS")), facts)
    for name in ("gradebook", "home", "other"):
        (folder / f"link-{name}").symlink_to(facts["FACTS"][name])
    (folder / "link-root").symlink_to("/root/.bashrc")
    notebook.cells.append(new_code_cell(LOOK))
    return notebook
