"""The address at which students find their repository. Until there is one, nothing leads anywhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from autograder.authoring.notebook import GITHUB, TO_OPEN, badge
from autograder.authoring.source import LessonError
from autograder.setup_cell import NOT_PUBLISHED, published

ADDRESS = re.compile(r"https://[\w.-]+(?::\d+)?(?:/[\w.~-]+)+")
"""Of a repository: a host and a path, and nothing that a shell or a notebook could read as more."""
COLAB = {
    "generative_ai_disabled": True,
    "private_outputs": True,
    "provenance": [],
    "toc_visible": True,
}
"""What Colab reads of a notebook: no model writes answers, no outputs are saved, contents are shown."""


def read_address(text: str) -> str:
    """Return an address without what may stand at its end.

    Raises:
        LessonError: it is none of a repository that everybody can read.
    """
    address = text.strip().rstrip("/").removesuffix(".git")
    if not ADDRESS.fullmatch(address):
        raise LessonError(
            f"--url {text}is not the address of a repository, such as https://github.com/us/lessons"
        )
    return address


def address_in(place: Path) -> str:
    """Return the address with which a checkout was published before; "" where there is none."""
    try:
        settings = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))
        return read_address(settings["project"]["urls"]["Repository"])
    except (OSError, ValueError, KeyError, TypeError, LessonError):
        return ""


def with_address(notebook: str, address: str, folder: str) -> str:
    """Write the address into the text of a released notebook. Colab fetches the course from the lesson's
    tag, so that what a student runs does not change under them.

    Args:
        address: "" leaves the notebook as it is.
        folder: of the lesson, and its tag.
    """
    if not address:
        return notebook
    notebook = notebook.replace(
        _in_json(NOT_PUBLISHED), _in_json(published(NOT_PUBLISHED, address, folder))
    )
    if address.startswith(GITHUB):
        notebook = notebook.replace(_in_json(TO_OPEN), _in_json(badge(address, folder)))
        plain = json.loads(notebook)
        plain["metadata"]["colab"] = COLAB
        notebook = json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return notebook


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
