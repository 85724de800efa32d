"""Every solved notebook runs; every student's notebook stops only where the student has to write."""

import os
import subprocess
import sys
from functools import cache

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from patience import PATIENCE

from lessons import COURSE, FOLDERS, ROOT

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_solved_notebook_runs(folder):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(
                "--nbval-lax",
                "--nbval-current-env",
                f"--nbval-kernel-startup-timeout={PATIENCE}",
                f"--nbval-cell-timeout={PATIENCE}",
            ),
            str(COURSE.read(folder).solved),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def errors(notebook: nbformat.NotebookNode, place: str) -> dict[str, str]:
    """Run every cell, whatever goes wrong: by cell, the error's name and what it says."""
    NotebookClient(
        notebook,
        allow_errors=True,
        timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": place}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    return {
        f"{number}: {cell.id}": f"{output.ename}: {output.evalue}"
        for number, cell in enumerate(notebook.cells, start=1)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    }


@cache
def errors_of_the_student_s_notebook(folder: str) -> dict[str, str]:
    lesson = COURSE.read(folder)
    notebook = nbformat.read(lesson.student, as_version=4)
    return errors(notebook, str(lesson.student.parent))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_student_s_notebook_stops_only_at_what_is_not_written_yet(folder):
    """Another error means that a cell needs a name which a stopped cell never made, or that a check
    hides the NotImplementedError."""
    found = errors_of_the_student_s_notebook(folder)
    assert {cell: error for cell, error in found.items() if error != "NotImplementedError: "} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_graded_cell_stops_while_nothing_is_written(folder):
    graded = {
        f"{cell.number}: {cell.grade_id}" for cell in COURSE.read(folder).cells if cell.points
    }
    assert graded <= set(errors_of_the_student_s_notebook(folder))


def test_every_error_of_a_notebook_is_seen(tmp_path):
    cells = [
        new_code_cell("raise NotImplementedError()", id="a"),
        new_code_cell("x + 1", id="b"),
        new_code_cell("x = 1", id="c"),
    ]
    assert errors(new_notebook(cells=cells), str(tmp_path)) == {
        "1: a": "NotImplementedError: ",
        "2: b": "NameError: name 'x' is not defined",
    }
