"""A link to the work of another student.

points: 0
state: STUDENT_FAULT
says: cannot be opened
"""


def submit(notebook, folder):
    another = next(c for c in notebook.cells if c.source.startswith("FACTS"))
    facts = {}
    exec(another.source, facts)
    (folder / "start.ipynb").symlink_to(facts["FACTS"]["other"])
