"""Run a notebook from top to bottom in a fresh kernel, with a progress bar."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from course.files.notebooks import HANDING_IN, nbgrader_of

CELL_SECONDS = 120
"""A whole lesson takes one minute on an ordinary laptop."""


@dataclass
class Run:
    """The outcome of the cells.

    Attributes:
        checks: for each graded cell that ran, None if it passed, else the first line of its message.
        stopped: every other cell that raised: "cell 12: NameError: …".
        ended_early: why the run could not go on, or None.
    """

    checks: dict[str, str | None] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    ended_early: str | None = None


def run_afresh(path: Path, cell_seconds: float = CELL_SECONDS) -> Run:
    """Run a copy of a notebook in a fresh kernel, in its folder; the file is not changed.

    Raises:
        ModuleNotFoundError: nbclient is not installed.
        ValueError: the notebook is not valid.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=4)
    except Exception as error:
        raise ValueError(f"{path.name} is no valid notebook: {error}") from error
    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        kernel_name="python3",
        allow_errors=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    run = Run()
    bar = tqdm(notebook.cells, path.name, unit="cell", file=sys.stdout, leave=False)
    with client.setup_kernel(env=_environment(path)):
        for index, cell in enumerate(bar):
            if cell.cell_type != "code":
                continue
            try:
                client.execute_cell(cell, index)
            except CellTimeoutError:
                run.ended_early = f"cell {index + 1} is still running after {cell_seconds:.0f} s"
            except DeadKernelError:
                run.ended_early = f"Python ended in cell {index + 1}"
            _note(run, index, cell)
            if run.ended_early:
                bar.close()
                return run
    return run


def _environment(path: Path) -> dict[str, str]:
    """Return the kernel's environment, in which earlier lessons are ours where given, as in grading."""
    environment = {**os.environ, HANDING_IN: str(path.resolve()), "SECOND_TOKEN_MINE": "missing"}
    for name in ("JPY_SESSION_NAME", "MPLBACKEND"):
        environment.pop(name, None)
    return environment


def _note(run: Run, index: int, cell: Any) -> None:
    errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
    why = _first_line(errors[0]) if errors else None
    if run.ended_early and why is None:
        why = run.ended_early
    nbgrader = nbgrader_of(cell)
    if nbgrader.get("grade"):
        run.checks[nbgrader["grade_id"]] = why
    elif errors:
        run.stopped.append(f"cell {index + 1}: {why}")


def _first_line(error: Any) -> str:
    """Return the first line of an error's message; of NotImplementedError, "not written yet"."""
    if error.ename == "NotImplementedError":
        return "not written yet"
    text = re.sub(r"\x1b\[[0-9;]*m", "", error.evalue).strip()
    words = text.splitlines()[0] if text else ""
    return words if error.ename == "CheckFailed" else f"{error.ename}: {words}"
