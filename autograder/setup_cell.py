"""The first code cell of every lesson: it finds the course, or says where it is.

`autograder publish --url` writes an address into it, from which Colab fetches the course. The judge reads
the cell of a published copy as that of the released notebook, so that it is known for what it is.
"""

from __future__ import annotations

import re

NOT_PUBLISHED = (
    '    raise ModuleNotFoundError("This copy was not published: open the one of your instructor.")'
)
FETCH = "    %pip install --quiet --no-deps git+"
FETCHES = re.compile(rf"^{re.escape(FETCH)}\S+$", re.MULTILINE)
SETUP = f"""\
from importlib.util import find_spec

if not find_spec("course"):  # on Colab it has to be fetched; elsewhere, say what is missing
    assert find_spec("google") and find_spec("google.colab"), "No course here: use `make lab`."
{NOT_PUBLISHED}"""


def published(source: str, address: str, tag: str) -> str:
    """Return the cell with the address of the students' repository, at the tag of a lesson."""
    return source.replace(NOT_PUBLISHED, f"{FETCH}{address}@{tag}")


def as_released(source: str) -> str:
    """Return the cell without an address; any other cell as it is."""
    return FETCHES.sub(lambda _: NOT_PUBLISHED, source)
