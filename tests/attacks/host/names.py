"""Looks for the folders of the grader and for a student's name in what every process and mount tells.

points: 0
says: looked
"""

from nbformat.v4 import new_code_cell

LOOK = """
from pathlib import Path

NAMES = [f"{FACTS['root']}/autograder", str(Path(FACTS["gradebook"]).parent), "OLDPWD=", *OWN]
for place in sorted(Path("/proc").glob("[0-9]*")):
    for file in (place / "cmdline", place / "environ"):
        try:
            told = file.read_bytes()
        except OSError:
            continue
        for name in NAMES:
            if name.encode() in told:
                print("GOT", name, "from", file)
for name in OWN[:1]:
    if name in Path("/proc/self/mountinfo").read_text():
        print("GOT", name, "from the mounts")
print("looked")
"""


def submit(notebook, folder):
    names = [part for part in folder.parts if part.endswith("host-names")]
    folders = [str(place) for place in (folder, folder.parent, folder.parent.parent)]
    assert names, f"{folder} is not named for this attack"
    notebook.cells.append(new_code_cell(f"OWN = {names + folders!r}\n{LOOK}"))
    return notebook
