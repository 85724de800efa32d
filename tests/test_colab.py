"""The lessons run beside the versions that Colab brings, older than ours by years."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from patience import PATIENCE
from selection import night

from lessons import COURSE, FOLDERS, ROOT

pytestmark = pytest.mark.slow

# What Colab had in August 2026: pip-freeze.txt in github.com/googlecolab/backend-info is renewed with its
# image. Its Python is 3.13 and its torch 2.11.0, with 3 GB of CUDA: here they are ours. On 2026-11-26
# lessons 00, 01, 03, 05, 06, 07, 08 and 11 ran with those two as well.
VERSIONS = [
    "ipykernel==6.17.1",
    "ipython==7.34.0",
    "ipywidgets==7.7.1",
    "matplotlib==3.10.0",
    "numpy==2.1.3",
    "torch==2.13.0",
    "traitlets==5.7.1",
]
OTHERS = ["nbclient", "safetensors", "tqdm"]

RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


@pytest.fixture(scope="module")
def colab(tmp_path_factory) -> Path:
    """The Python of an environment like Colab's, with the course installed as lessons install it."""
    folder = tmp_path_factory.mktemp("colab")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *VERSIONS, *OTHERS], check=True)
    source = folder / "source"  # a copy, since setuptools builds beside what it is given
    for name in ("course", "autograder", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    subprocess.run([*pip, "--no-deps", source], check=True)
    return python


def tonight() -> list[str]:
    """Every other lesson, and the others the night after: all run with our versions every night."""
    first = int(night()[0]) % 2 if night() else 0
    return FOLDERS[first :: 2 if night() else 1]


@pytest.mark.parametrize("folder", tonight())
def test_a_solved_lesson_runs_with_the_versions_of_colab(colab, folder, tmp_path):
    notebook = nbformat.read(COURSE.read(folder).solved, as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r"### BEGIN HIDDEN TESTS.*", "", cell.source, flags=re.DOTALL)
    path = tmp_path / "lesson.ipynb"
    nbformat.write(notebook, path)
    environment = {**os.environ, "PATH": f"{colab.parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        [colab, "-c", RUN, path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    outputs = [
        out for cell in nbformat.read(path, as_version=4).cells for out in cell.get("outputs", [])
    ]
    said = "".join(out.text for out in outputs if out.output_type == "stream")
    assert "PASS" in said
    assert any("image/png" in out.get("data", {}) for out in outputs)
