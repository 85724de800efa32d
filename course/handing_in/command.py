"""`python -m course hand-in LESSON`: run a lesson afresh, and say whether it is ready to hand in."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from course.files.notebooks import notebook_of, read_cells, write_notes
from course.files.released import Released, find_lesson
from course.handing_in.fresh_run import Run, run_afresh
from course.handing_in.graded_cells import Fact, compare_cells

MAX_BYTES = 128 * 2**20
"""A larger file is not graded."""


def main(arguments: list[str]) -> int:
    """Run the command. Returns 0 only when the notebook is ready to hand in."""
    parser = argparse.ArgumentParser(prog="python -m course hand-in", description=__doc__)
    parser.add_argument("lesson", help="03, 03-kv-cache, or the path of a notebook")
    name = parser.parse_args(arguments).lesson
    try:
        lesson, path = find_notebook(name)
        facts = inspect(lesson, path)
    except (ValueError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if all(fact.right for fact in facts) else 1


def find_notebook(name: str) -> tuple[Released, Path]:
    """Find a lesson's notebook here, in `lessons/` or in the parent folder; take a path as it is.

    Raises:
        ValueError: there is no such lesson, or no notebook of it.
    """
    path = Path(name)
    if path.suffix == ".ipynb":
        if not path.is_file():
            raise ValueError(f"there is no file {name}")
        return _lesson_of(path), path
    lesson = find_lesson(name)
    for place in (Path(), Path("lessons"), Path("..")):
        if path := notebook_of(lesson, place):
            return lesson, path
    raise ValueError(
        f"there is no {lesson.folder}/{lesson.file_name} here ({Path().resolve()}); "
        "go to the folder with your lessons, or name the file"
    )


def _lesson_of(path: Path) -> Released:
    """Tell a notebook's lesson by its folder, else by its name, else by its cells."""
    for name in (path.resolve().parent.name, path.name):
        try:
            return find_lesson(name)
        except ValueError:
            continue
    raise ValueError(
        f"{path.name} is not the name of a lesson's notebook; rename it back, such as kv_cache.ipynb"
    )


def inspect(lesson: Released, path: Path) -> list[Fact]:
    """Check a notebook, run it, print one line per fact, and write the receipt beside it.

    Raises:
        ValueError: it is not a notebook.
        ModuleNotFoundError: a package that running notebooks needs is not installed.
    """
    data = path.read_bytes()
    saved = datetime.fromtimestamp(path.stat().st_mtime)
    print(f"{lesson.folder}/{path.name}, as saved on {saved:%d %B at %H:%M:%S}")
    cells = read_cells(path)
    facts = _say([_name(lesson, path), _size(data), *compare_cells(lesson, cells)])
    run = _run(path)
    facts += _say([*_results(lesson, run), _unchanged(path, code_hash(cells))])
    fit = all(fact.right for fact in facts)
    receipt = path.with_name(f"{path.stem}.receipt.json")
    try:
        write_notes(receipt, _receipt(lesson, path, data, code_hash(cells), run, facts))
        print(f"Receipt: {receipt.name}; the code's SHA-256 is {code_hash(cells)[:12]}…")
    except OSError as error:
        facts += _say([Fact(False, f"The receipt could not be written: {error}")])
        fit = False
    print("Ready to hand in." if fit else "Not ready to hand in yet: see the lines marked NO.")
    return facts


def _say(facts: list[Fact]) -> list[Fact]:
    for fact in facts:
        print(f"{'yes' if fact.right else 'NO ':<4} {fact.words}", flush=True)
    return facts


def _name(lesson: Released, path: Path) -> Fact:
    if path.name == lesson.file_name:
        return Fact(True, f"The file has its name, {path.name}.")
    return Fact(False, f"The file is called {path.name}; rename it to {lesson.file_name}.")


def _size(data: bytes) -> Fact:
    if len(data) <= MAX_BYTES:
        return Fact(True, f"It has {len(data):,} bytes, of {MAX_BYTES:,} at most.")
    return Fact(
        False, f"It has {len(data):,} bytes; {MAX_BYTES:,} are read at most: clear outputs."
    )


def _run(path: Path) -> Run:
    try:
        return run_afresh(path)
    except ModuleNotFoundError as error:
        if error.name not in ("nbclient", "nbformat"):
            raise
        raise ModuleNotFoundError(
            f"Running a notebook needs {error.name}: pip install nbclient", name=error.name
        ) from None


def _results(lesson: Released, run: Run) -> list[Fact]:
    """List the results of the checks, then the other cells that stopped."""
    failing = [
        Fact(False, f"{cell.name} ({cell.points:g} of 10 points): {_why(cell.name, run)}")
        for cell in lesson.graded
        if run.checks.get(cell.name, "") is not None
    ]
    n_checks = len(lesson.graded)
    words = f"{n_checks - len(failing)} of {n_checks} visible checks pass in a fresh kernel."
    facts = [Fact(not failing, words), *failing]
    if run.ended_early:
        facts.append(Fact(False, f"The run did not reach the end: {run.ended_early}."))
    facts += [Fact(False, f"It stops in {where}") for where in run.stopped]
    if not run.ended_early and not run.stopped:
        facts.append(Fact(True, "Every other cell runs, from top to bottom."))
    return facts


def _why(name: str, run: Run) -> str:
    return run.checks.get(name) or "it did not run"


def code_hash(cells: list[dict[str, Any]]) -> str:
    """Hash the sources of a notebook's code cells: the same before and after outputs are saved, as
    JupyterLab does every two minutes."""
    sources = [cell["source"].strip() for cell in cells if cell.get("cell_type") == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def _unchanged(path: Path, code: str) -> Fact:
    try:
        same = code_hash(read_cells(path)) == code
    except ValueError:  # it is being written
        same = False
    if same:
        return Fact(True, "Its code did not change meanwhile.")
    return Fact(False, "Other code was saved meanwhile; run this once more.")


def _receipt(
    lesson: Released, path: Path, data: bytes, code: str, run: Run, facts: list[Fact]
) -> dict[str, Any]:
    """Return the receipt: which bytes were checked when, with which versions, and the results."""
    versions = {"python": sys.version.split()[0]}
    for package in ("second-token", "torch", "numpy", "ipython"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "lesson": lesson.folder,
        "file": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "code_sha256": code,  # also that of the file with newer outputs
        "bytes": len(data),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "checks": {
            cell.name: run.checks.get(cell.name, "it did not run") or "passes"
            for cell in lesson.graded
        },
        "wrong": [fact.words for fact in facts if not fact.right],
        "fit": all(fact.right for fact in facts),
    }
