"""A student's folder of lessons, with answers written into the notebooks; real kernels to run them in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell
from patience import PATIENCE
from submissions import answers

from autograder.authoring.notebook import to_text
from lessons import COURSE, ROOT


def lay_out(place: Path, folder: str, *more: str, **instead: str) -> Path:
    """Write a lesson's notebook with every answer, or `instead` of one another one; return its path."""
    lesson = COURSE.read(folder)
    path = place / folder / f"{lesson.module}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(lesson.student, as_version=4)
    written = {**answers(lesson), **instead}
    for cell in notebook.cells:
        cell.source = written.get(cell.id, cell.source)
    notebook.cells += [new_code_cell(source) for source in more]
    path.write_text(to_text(notebook), encoding="utf-8")
    return path


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text in the cells of a notebook, where it must stand."""
    notebook = nbformat.read(path, as_version=4)
    assert any(old in cell.source for cell in notebook.cells), old
    for cell in notebook.cells:
        cell.source = cell.source.replace(old, new)
    path.write_text(to_text(notebook), encoding="utf-8")


def environment(notebook: Path | None = None, **more: str) -> dict[str, str]:
    """What a kernel finds that JupyterLab starts for a notebook, or that anybody else starts."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SECOND_TOKEN") and name not in ("JPY_SESSION_NAME", "MPLBACKEND")
    }
    session = {"JPY_SESSION_NAME": str(notebook)} if notebook else {}
    return {**plain, "PYTHONPATH": str(ROOT), **session, **more}


@contextmanager
def kernel(notebook: Path | None = None, cwd: Path | None = None, **more: str) -> Iterator:
    """Start a kernel as JupyterLab does for this notebook; give a function that runs a cell in it and
    returns what it printed or raised."""
    place = cwd or (notebook.parent if notebook else None)
    manager, client = start_new_kernel(
        kernel_name="python3", env=environment(notebook, **more), cwd=str(place) if place else None
    )
    try:

        def run(source: str) -> str:
            said: list[str] = []

            def hear(message: dict) -> None:
                content = message["content"]
                if message["msg_type"] == "stream":
                    said.append(content["text"])
                elif message["msg_type"] == "error":
                    said.append(f"{content['ename']}: {content['evalue']}")
                elif message["msg_type"] == "display_data":
                    said.append(repr(sorted(content["data"])))

            client.execute_interactive(source, timeout=PATIENCE, output_hook=hear)
            return "".join(said)

        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def course_command(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m course …` in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "course", *arguments],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
    )
