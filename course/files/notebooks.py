"""Find a student's notebooks: the one that this kernel runs, and those of other lessons near it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from course.files.released import Released
from course.files.writing import write_whole

HANDING_IN = "SECOND_TOKEN_HAND_IN"
"""Set in the kernel that `hand-in` starts: the path of the notebook that it runs."""
NOTES = ".second-token"
"""The folder, beside those of the lessons, with notes about a student's work."""


def own_notebook() -> Path | None:
    """Return the file of the notebook that a student has open in this kernel, or None.

    It is None in the kernels that grading, builds, tests and `hand-in` start: only JupyterLab and VS Code
    tell which file is open.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None  # no kernel: a script, or a judge
    if os.environ.get(HANDING_IN) or os.environ.get("NBGRADER_EXECUTION"):
        return None
    name = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
    path = Path(name) if isinstance(name, str) and name.endswith(".ipynb") else None
    return path if path is not None and path.is_file() else None


def notebook_handed_in() -> Path | None:
    """Return the notebook that `hand-in` runs in this kernel, or None."""
    name = os.environ.get(HANDING_IN)
    return Path(name) if name else None


def on_colab() -> bool:
    """Tell whether this kernel runs on Colab, where no notebook has a file."""
    return "google.colab" in sys.modules


def lessons_folder(notebook: Path) -> Path:
    """Return the folder that holds the lessons' folders, given one lesson's notebook."""
    folder = notebook.resolve().parent
    return folder.parent if folder.name[:2].isdigit() and folder.name[2:3] == "-" else folder


def notebook_of(lesson: Released, lessons: Path) -> Path | None:
    """Return a lesson's notebook, in its own folder or directly in `lessons`, or None."""
    for path in (lessons / lesson.folder / lesson.file_name, lessons / lesson.file_name):
        if path.is_file():
            return path
    return None


def read_cells(path: Path) -> list[dict[str, Any]]:
    """Read a notebook's cells, each with its `source` as one string and a dict of `metadata`.

    Raises:
        ValueError: the file cannot be read or is no notebook; the message says which.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8-sig"))["cells"]
        return [
            {
                **cell,
                "source": "".join(cell.get("source", "")),
                "metadata": cell.get("metadata") or {},
            }
            for cell in cells
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no notebook that can be read: {error}") from error


def nbgrader_of(cell: dict[str, Any]) -> dict[str, Any]:
    """Return nbgrader's metadata of a cell; empty for a cell that the student added."""
    metadata = cell["metadata"].get("nbgrader")
    return metadata if isinstance(metadata, dict) else {}


def read_notes(path: Path) -> dict[str, Any]:
    """Read a file of notes; empty if it is missing, incomplete or something else."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return notes if isinstance(notes, dict) else {}


def write_notes(path: Path, notes: dict[str, Any]) -> None:
    """Write a file of notes whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    write_whole(path, (json.dumps(notes, indent=1) + "\n").encode())
