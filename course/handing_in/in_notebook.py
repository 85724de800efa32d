"""`course.hand_in()`, in the last cell of a lesson."""

from __future__ import annotations

import ast
import codecs
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from course.files.notebooks import HANDING_IN, nbgrader_of, on_colab, own_notebook, read_cells

COURSE = Path(__file__).resolve().parents[2]


def hand_in_this_notebook() -> None:
    """Print whether this kernel's notebook is ready to hand in; do nothing where no student opened it."""
    notebook = own_notebook()
    if notebook is None:
        if on_colab() and not os.environ.get(HANDING_IN):
            print(
                "On Colab a notebook has no file here. Restart and run all instead; to hand in, "
                "choose File, Download, Download .ipynb."
            )
        return
    try:
        unsaved = unsaved_answers(read_cells(notebook), _run_so_far())
    except ValueError as error:
        print(error)
        return
    if unsaved:
        print(
            f"You ran another {', '.join(unsaved)} than {notebook.name} holds: save the notebook "
            "(Ctrl-S), and run this cell again."
        )
        return
    _run_command(notebook)


def _run_so_far() -> list[str]:
    from IPython import get_ipython

    return [source for source in get_ipython().user_ns.get("In", []) if isinstance(source, str)]


def unsaved_answers(cells: list[dict[str, Any]], run: list[str]) -> list[str]:
    """List the answers whose cell last ran with another source than the file holds.

    Args:
        cells: the cells of the file.
        run: the sources that ran in this kernel, in their order.
    """
    unsaved = []
    for cell in cells:
        if not nbgrader_of(cell).get("solution"):
            continue
        names = _defined(cell["source"])
        last = next((source for source in reversed(run) if names & _defined(source)), None)
        if last is not None and last.strip() != cell["source"].strip():
            unsaved.append(nbgrader_of(cell).get("grade_id", min(names)))
    return unsaved


def _defined(source: str) -> set[str]:
    """Return the functions and classes that a cell defines; none if it is not valid Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return set()
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _run_command(notebook: Path) -> None:
    """Run `hand-in` in another process, and print its output as it appears."""
    path = os.pathsep.join(filter(None, [str(COURSE), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "course", "hand-in", str(notebook)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf8"},
    )
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while data := process.stdout.read1(4096):
            print(decoder.decode(data), end="", flush=True)
    finally:
        process.terminate()  # where the cell was interrupted
        process.wait()
        process.stdout.close()
