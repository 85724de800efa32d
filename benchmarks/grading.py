"""Seconds per submission: `autograder grade` beside stock nbgrader, on the same whole notebooks.

    python benchmarks/grading.py                   lesson 02
    python benchmarks/grading.py --lessons 03 07 [--submissions N] [--rounds R]
    python benchmarks/grading.py --lessons all     01 to the last, which takes an hour
    python benchmarks/grading.py --quick           lesson 00, solved, with one job, once

Stock nbgrader executes each notebook, hidden checks included, in a kernel of its own and on your account;
this judge runs it in a sandbox. Both are run as commands, in turns, on a class of one and on a larger
class: what a run costs before its first submission falls out of the difference. The last line of the
output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path

import nbformat
import torch
from harness import bar, heading, print_bars, tell
from tqdm import tqdm

from autograder.lessons import lesson_folders
from autograder.lessons.assembly import by_grade_id
from autograder.lessons.exhibits import Bug, bugs_of

ROOT = Path(__file__).resolve().parents[1]
STOCK = "\ndel c.Autograde\n"
"""Put behind the course's configuration: takes its own steps out again."""
STOCK_CLASS = 2
"""Submissions of the larger class that stock nbgrader gets: it takes longest."""
BARS = {1: 15.0, 2: 22.0}
"""How many times as fast as stock nbgrader, by jobs, as a geometric mean of the lessons `HELD`."""
LEAST = 8.0
"""How many times as fast in each of them, with one job."""
HELD = tuple(f"{number:02d}" for number in range(1, 8))
JOBS = tuple(BARS)
KINDS = ("solved", "wrong", "empty")
INTERVAL = 0.1
"""Seconds between two looks at the memory."""


@dataclass
class Row:
    """One lesson: seconds a submission, each by the number of jobs, and what else a class takes. What
    was not asked for is empty."""

    lesson: str
    stock: float
    solved: dict[int, float]
    wrong: dict[int, float]
    empty: dict[int, float]
    """The floor: of a notebook in which no cell is left."""
    before_the_first: dict[int, float]
    memory: dict[int, float]
    """Megabytes at the most, of all processes together."""
    parts: dict[str, float]
    """Of `solved` with one job; the rest is the gradebook's and the file's."""

    def ratio(self, jobs: int) -> float:
        return self.stock / self.solved[jobs]


def main() -> None:
    arguments = read_arguments()
    result = heading("grading", None, torch.device("cpu"))
    print(json.dumps(result, indent=1))
    print(
        "seconds a submission   stock   by jobs: seconds, times as fast; wrong/solved, empty, memory"
    )
    rows = []
    for folder in tqdm(arguments.lessons, unit="lesson", file=sys.stderr):
        rows.append(measure(folder, arguments))
        print(line_of(rows[-1]), flush=True)
    means = {n: geometric_mean([row.ratio(n) for row in rows]) for n in arguments.jobs}
    print(
        "geometric mean: " + ", ".join(f"{mean:.1f}x with {n} job(s)" for n, mean in means.items())
    )
    bars = bars_of(rows)
    print_bars(bars)
    rows_told = [asdict(row) for row in rows]
    tell(result | {"rows": rows_told, "geometric_means": means, "bars": bars}, arguments.out)


def line_of(row: Row) -> str:
    """What is printed of one lesson."""
    parts = [f"{row.lesson:<21} {row.stock:5.1f} s"]
    parts += [f"{row.solved[jobs]:5.2f} s {row.ratio(jobs):4.0f}x" for jobs in row.solved]
    parts += [f"{row.wrong[jobs] / row.solved[jobs]:5.2f}" for jobs in row.wrong]
    parts += [f"{seconds:5.2f} s" for seconds in row.empty.values()]
    return " ".join([*parts, *(f"{memory:5.0f} MB" for memory in row.memory.values())])


def bars_of(rows: Sequence[Row]) -> list[dict]:
    """Hold each lesson that has a bar against it; and their means, where all of them were measured."""
    held = [row for row in rows if row.lesson.startswith(HELD)]
    bars = [
        bar(f"{row.lesson}: grading beside stock nbgrader, 1 job", row.ratio(1), LEAST)
        for row in held
    ]
    if len(held) == len(HELD):
        what = "grading beside stock nbgrader, mean of lessons 01 to 07"
        means = {jobs: geometric_mean([row.ratio(jobs) for row in held]) for jobs in BARS}
        bars += [bar(f"{what}, {jobs} job(s)", means[jobs], least) for jobs, least in BARS.items()]
    return bars


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folders = sorted(lesson_folders().values())
    parser.add_argument(
        "--lessons", nargs="+", default=["02"], help="such as 03 or 03-kv-cache, or all; if not 02"
    )
    parser.add_argument("--submissions", type=int, default=8, help="files in the larger class")
    parser.add_argument("--rounds", type=int, default=2, help="how often; the shortest counts")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="lesson 00, four solved submissions, one job, one round",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there as well")
    arguments = parser.parse_args()
    arguments.jobs, arguments.kinds = JOBS, KINDS
    if arguments.quick:
        arguments.lessons, arguments.submissions, arguments.rounds = ["00"], 4, 1
        arguments.jobs, arguments.kinds = JOBS[:1], KINDS[:1]
    for name, least in (("submissions", 2), ("rounds", 1)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(arguments, name)}")
    wanted = folders[1:] if arguments.lessons == ["all"] else arguments.lessons
    arguments.lessons = [f for f in folders if f in wanted or f.partition("-")[0] in wanted]
    if len(arguments.lessons) != len(wanted):
        parser.error(f"--lessons {' '.join(wanted)}: there are {', '.join(folders)}")
    return arguments


def geometric_mean(values: Sequence[float]) -> float:
    return prod(values) ** (1 / len(values))


def measure(folder: str, arguments: argparse.Namespace) -> Row:
    """Measure one lesson."""
    n = arguments.submissions
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        place = Path(name)
        classes = lay_out_classes(place, folder, n)
        if "wrong" in arguments.kinds:
            grade(classes["wrong"], folder, jobs=2)  # finds out what the known mistakes reply
        times: dict[tuple[str, int], float] = {}
        memory, parts = dict.fromkeys(arguments.jobs, 0.0), {}
        for _ in range(arguments.rounds):
            for kind in ("stock-1", "stock"):
                run = partial(nbgrader, classes[kind], "autograde", folder, "--force")
                note(times, (kind, 1), run)
            for jobs in arguments.jobs:
                for kind in ("solved-1", *arguments.kinds):
                    peak = note(times, (kind, jobs), partial(grade, classes[kind], folder, jobs))
                    memory[jobs] = max(memory[jobs], peak)
                    if (kind, jobs) == ("solved", 1):
                        parts = mean_parts(classes[kind])
        right = ("stock-1", "stock", "solved-1", "solved")
        confirm_full_points([classes[kind] for kind in right], folder)
    first = {jobs: before_the_first(times, jobs, n) for jobs in arguments.jobs}
    each: dict[str, dict[int, float]] = {kind: {} for kind in KINDS}
    for kind in arguments.kinds:
        each[kind] = {jobs: (times[kind, jobs] - first[jobs]) / n for jobs in arguments.jobs}
    stock = (times["stock", 1] - times["stock-1", 1]) / (STOCK_CLASS - 1)
    return Row(folder, stock, **each, before_the_first=first, memory=memory, parts=parts)


def before_the_first(times: Mapping[tuple[str, int], float], jobs: int, n: int) -> float:
    """Seconds that a run takes with no submission, from those of a class of one and of n."""
    return times["solved-1", jobs] - (times["solved", jobs] - times["solved-1", jobs]) / (n - 1)


def lay_out_classes(place: Path, folder: str, n: int) -> dict[str, Path]:
    """A course folder for every class that is graded, by its kind."""
    module = next(name for name, found in lesson_folders().items() if found == folder)
    bugs = bugs_of(module)
    solved, empty = notebook_with(folder, module, {}), notebook_with(folder, module, {})
    empty.cells = []
    classes = {
        "solved-1": [solved],
        "solved": [solved] * n,
        "wrong": [notebook_with(folder, module, bug.answer) for bug in spread(bugs, n)],
        "empty": [empty] * n,
    }
    release(place / "released", folder)
    found = {kind: lay_out(place / kind, folder, books) for kind, books in classes.items()}
    for kind, k in (("stock-1", 1), ("stock", STOCK_CLASS)):
        found[kind] = lay_out(place / kind, folder, [solved] * k, STOCK)
    return found


def release(place: Path, folder: str) -> None:
    """Make a course folder with the lesson as it is released, and nobody in it."""
    shutil.copytree(ROOT / "solutions" / folder, place / "solutions" / folder)
    shutil.copy(ROOT / "nbgrader_config.py", place)
    nbgrader(place, "generate_assignment", folder)


def spread(bugs: Sequence[Bug], n: int) -> list[Bug]:
    """Choose n of the museum's bugs, from its beginning to its end."""
    return [bugs[number * len(bugs) // n] for number in range(n)]


def mean_parts(place: Path) -> dict[str, float]:
    """The seconds of each part of judging, from the results that were kept."""
    kept = [json.loads(p.read_text()) for p in (place / "grading" / "results").rglob("*.json")]
    seconds = [found["result"]["seconds"] for found in kept]
    return {part: sum(s[part] for s in seconds) / len(seconds) for part in seconds[0]}


def note(
    times: dict[tuple[str, int], float], key: tuple[str, int], run: Callable[[], float]
) -> float:
    """Run, keep the shortest time; return what the run returned."""
    begun = time.perf_counter()
    returned = run()
    times[key] = min(times.get(key, float("inf")), time.perf_counter() - begun)
    return returned


def notebook_with(folder: str, module: str, answer: dict) -> nbformat.NotebookNode:
    """The lesson as students get it with all answers written into it, one of them perhaps wrong."""
    written = by_grade_id(module, answer)
    notebook = nbformat.read(ROOT / "lessons" / folder / f"{module}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = written.get(cell.id, cell.source)
    return notebook


def lay_out(
    place: Path, folder: str, notebooks: Sequence[nbformat.NotebookNode], more: str = ""
) -> Path:
    """A copy of the course folder `released`, with a class in it and `more` in its configuration."""
    shutil.copytree(place.parent / "released", place)
    with (place / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(more)
    (released,) = (place / "lessons" / folder).glob("*.ipynb")
    for number, notebook in enumerate(notebooks):
        submitted = place / "grading" / "submitted" / f"student-{number}" / folder
        submitted.mkdir(parents=True)
        notebook.metadata["student"] = number  # equal files would be judged once
        nbformat.write(notebook, submitted / released.name)
    return place


def nbgrader(place: Path, *arguments: str) -> float:
    return run(place, [sys.executable, "-m", "nbgrader", *arguments])


def grade(place: Path, folder: str, jobs: int) -> float:
    """Judge a class and write its gradebook as if nothing were kept; megabytes at the most."""
    options = ["--judge-again", "--force", "--jobs", str(jobs)]
    return run(place, [sys.executable, "-m", "autograder", "grade", folder, *options])


def run(place: Path, command: Sequence[str]) -> float:
    """Run a command; return the megabytes of all its processes together, at the most."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    peaks = [0.0]
    watch = threading.Thread(target=watch_memory, args=(process.pid, peaks), daemon=True)
    watch.start()
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{said[-3000:]}")
    return max(peaks)


def watch_memory(root: int, peaks: list[float]) -> None:
    """Note the memory of a process and all that descend from it, until it ends."""
    while Path(f"/proc/{root}/status").exists():
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(status.parent.name)] = int(
                    status.read_text().rpartition(")")[2].split()[1]
                )
            except OSError:  # it has ended
                continue
        family, more = {root}, {root}
        while more:
            more = {child for child, parent in parents.items() if parent in more} - family
            family |= more
        peaks.append(sum(map(megabytes, family)))
        time.sleep(INTERVAL)


def megabytes(process: int) -> float:
    """The memory of one process; pages that several share are divided among them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def confirm_full_points(places: Sequence[Path], folder: str) -> None:
    """A comparison of two ways that grade differently would mean nothing."""
    from nbgrader.api import Gradebook

    for place in places:
        with Gradebook(f"sqlite:///{place / 'grading' / 'gradebook.db'}") as gradebook:
            scores = {found.score for found in gradebook.assignment_submissions(folder)}
        if scores != {10.0}:
            raise SystemExit(f"{place.name}: solved submissions were graded {sorted(scores)}")


if __name__ == "__main__":
    main()
