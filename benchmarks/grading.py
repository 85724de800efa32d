"""Seconds per submission of lesson 03: this course's judge beside stock nbgrader, on the same files.

    python benchmarks/grading.py [--submissions N] [--rounds R]

Both are `nbgrader autograde`, run as a command; stock nbgrader executes the notebook, hidden checks
included, in its own kernel and on your account. The two take turns, so that a noisy minute of the
machine falls on both. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import nbformat
from tqdm import tqdm

from course.measure.machine import card

ROOT = Path(__file__).resolve().parents[1]
LESSON, NOTEBOOK = "03-kv-cache", "kv_cache.ipynb"
WAYS = ("judge", "stock")
STOCK = "\ndel c.Autograde\n"
"""Put behind the course's configuration: takes its own steps out again."""
AGAIN = "\nc.Judge.judge_again = True\n"
"""The same: what was kept in another round does not count."""


def main() -> None:
    arguments = read_arguments()
    machine = card()
    print(f"{machine.cpu}, {machine.cores} cores, {machine.system}, {machine.versions}")
    print(f"lesson {LESSON}, {arguments.submissions} solved submissions, {arguments.rounds} rounds")
    kinds = {"whole": whole_notebook(), "answers alone": answers_alone()}
    rows = [measure(kind, notebook, arguments) for kind, notebook in kinds.items()]
    for row in rows:
        for way in WAYS:
            print(
                f"{row['notebook']:<14} {way:<6} {row[way]['seconds_each']:6.2f} s a submission, "
                f"{row[way]['seconds_before_the_first']:6.2f} s before the first"
            )
    print(json.dumps({"benchmark": "grading", "machine": asdict(machine), "results": rows}))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=4, help="files in the class")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is graded")
    arguments = parser.parse_args()
    for name, least in (("submissions", 2), ("rounds", 1)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(arguments, name)}")
    return arguments


def whole_notebook() -> nbformat.NotebookNode:
    """The lesson as students get it, with every answer written into it."""
    solved = nbformat.read(ROOT / "solutions" / LESSON / NOTEBOOK, as_version=4)
    answers = {cell.id: cell.source for cell in solved.cells if is_answer(cell)}
    notebook = nbformat.read(ROOT / "lessons" / LESSON / NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source)
    return notebook


def is_answer(cell: nbformat.NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("solution", False)


def answers_alone() -> nbformat.NotebookNode:
    """The same without the cells that only show something."""
    notebook = whole_notebook()
    notebook.cells = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code"
        and ("nbgrader" in cell.metadata or "export" in cell.metadata.get("tags", []))
    ]
    # The lesson imports its visible checks in a cell that also imports its pictures.
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("from course.checks import kv_cache as checks")
    )
    return notebook


def measure(kind: str, notebook: nbformat.NotebookNode, arguments: argparse.Namespace) -> dict:
    """Seconds of both ways, in turns, for a class of one and for the whole class: what a run costs
    before its first submission falls out of the difference."""
    sizes = (1, arguments.submissions)
    runs: dict[tuple[str, int], list[float]] = {(way, n): [] for n in sizes for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        courses = {
            (way, n): lay_out(Path(folder) / f"{way}-{n}", notebook, n, way) for way, n in runs
        }
        for _ in tqdm(range(arguments.rounds), desc=kind, file=sys.stderr):
            for run, course in courses.items():
                begun = time.perf_counter()
                nbgrader(course, "autograde", LESSON, "--force")
                runs[run].append(time.perf_counter() - begun)
        for (_, n), course in courses.items():
            confirm_full_points(course, n)
    rows = {}
    for way in WAYS:
        one, all_of_them = (min(runs[way, n]) for n in sizes)
        each = (all_of_them - one) / (arguments.submissions - 1)
        rows[way] = {
            "seconds_each": each,
            "seconds_before_the_first": one - each,
            "median_seconds_of_the_class": median(runs[way, arguments.submissions]),
        }
    ratio = rows["stock"]["seconds_each"] / rows["judge"]["seconds_each"]
    return {"notebook": kind, **rows, "ratio": ratio}


def lay_out(place: Path, notebook: nbformat.NotebookNode, submissions: int, way: str) -> Path:
    """A course folder with a class in it."""
    shutil.copytree(ROOT / "solutions" / LESSON, place / "solutions" / LESSON)
    config = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    more = {"stock": STOCK, "judge": AGAIN}[way]
    (place / "nbgrader_config.py").write_text(config + more, encoding="utf-8")
    nbgrader(place, "generate_assignment", LESSON)
    for number in range(submissions):
        submitted = place / "grading" / "submitted" / f"student-{number}" / LESSON
        submitted.mkdir(parents=True)
        notebook.metadata["student"] = number  # equal files would be judged once
        nbformat.write(notebook, submitted / NOTEBOOK)
    return place


def nbgrader(place: Path, *arguments: str) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=place,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"nbgrader {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")


def confirm_full_points(place: Path, submissions: int) -> None:
    """A comparison of two ways that grade differently would mean nothing."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{place / 'grading' / 'gradebook.db'}") as gradebook:
        scores = [found.score for found in gradebook.assignment_submissions(LESSON)]
    if scores != [10.0] * submissions:
        raise SystemExit(f"{place.name}: {submissions} solved submissions were graded {scores}")


if __name__ == "__main__":
    main()
