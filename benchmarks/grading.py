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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from pathlib import Path

import harness
import nbformat
import torch
from harness import bar
from tqdm import tqdm

from autograder.lessons import lesson_folders
from autograder.lessons.assembly import by_grade_id
from autograder.lessons.exhibits import Bug, bugs_of

ROOT = Path(__file__).resolve().parents[1]
STOCK = "\ndel c.Autograde\n"
"""Put behind the course's configuration: takes the course's steps out again."""
STOCK_CLASS = 2
"""Submissions of the larger class that stock nbgrader gets: it takes longest."""
BARS = {1: 15.0, 2: 22.0}
"""How many times as fast as stock nbgrader, by jobs, as a geometric mean of the lessons `HELD`."""
MINIMUM = 8.0
"""How many times as fast in each of them, with one job."""
HELD = tuple(f"{number:02d}" for number in range(1, 8))
JOBS = tuple(BARS)
KINDS = ("solved", "wrong", "empty")
INTERVAL = 0.1
"""Seconds between two looks at the memory."""


@dataclass
class Row:
    """One lesson: seconds a submission, each by the number of jobs, and what else a class takes. What
    was not measured is empty."""

    lesson: str
    stock: float
    solved: dict[int, float]
    wrong: dict[int, float]
    empty: dict[int, float]
    """Of a notebook in which no cell is left: the minimum."""
    before_the_first: dict[int, float]
    memory: dict[int, float]
    """Megabytes at the most, of all processes together."""
    parts: dict[str, float]
    """Of `solved` with one job; the rest is the gradebook's and the file's."""

    def ratio(self, jobs: int) -> float:
        return self.stock / self.solved[jobs]


def main(arguments: list[str] | None = None) -> int:
    parsed = parse(arguments)
    result = harness.begin("grading", arguments, torch.device("cpu"))
    head = "seconds a submission   stock   by jobs: seconds, times as fast; wrong/solved, empty, memory"
    print(head)
    rows = []
    for folder in tqdm(parsed.lessons, unit="lesson", file=sys.stderr):
        rows.append(measure(folder, parsed))
        print(line_of(rows[-1]), flush=True)
    means = {n: geometric_mean([row.ratio(n) for row in rows]) for n in parsed.jobs}
    print("geometric mean:", ", ".join(f"{m:.1f}x with {n} job(s)" for n, m in means.items()))
    result |= {"rows": [asdict(row) for row in rows], "geometric_means": means}
    harness.tell(result | {"bars": bars_of(rows)}, parsed.out)
    return 0


def line_of(row: Row) -> str:
    """Write one lesson's line."""
    parts = [f"{row.lesson:<21} {row.stock:5.1f} s"]
    parts += [f"{row.solved[jobs]:5.2f} s {row.ratio(jobs):4.0f}x" for jobs in row.solved]
    parts += [f"{row.wrong[jobs] / row.solved[jobs]:5.2f}" for jobs in row.wrong]
    parts += [f"{seconds:5.2f} s" for seconds in row.empty.values()]
    return " ".join([*parts, *(f"{memory:5.0f} MB" for memory in row.memory.values())])


def bars_of(rows: Sequence[Row]) -> list[dict]:
    """Hold each lesson that has a bar against it; and their means, where all of them were measured."""
    held = [row for row in rows if row.lesson.startswith(HELD)]
    what = "grading beside stock nbgrader"
    bars = [bar(f"{row.lesson}: {what}, 1 job", row.ratio(1), MINIMUM) for row in held]
    for jobs, minimum in BARS.items() if len(held) == len(HELD) else ():
        mean = geometric_mean([row.ratio(jobs) for row in held])
        bars.append(bar(f"{what}, mean of lessons 01 to 07, {jobs} job(s)", mean, minimum))
    return bars


def parse(arguments: list[str] | None) -> argparse.Namespace:
    quick = "lesson 00, four solved submissions, one job, one round"
    parser = harness.parser_of(__doc__, 2, quick)
    names = "such as 03 or 03-kv-cache, or all; if not 02"
    parser.add_argument("--lessons", nargs="+", default=["02"], help=names)
    parser.add_argument(
        "--submissions", type=harness.at_least(2), default=8, help="files in the larger class"
    )
    parsed = parser.parse_args(arguments)
    parsed.jobs, parsed.kinds = JOBS, KINDS
    if parsed.quick:
        parsed.lessons, parsed.submissions, parsed.rounds = ["00"], 4, 1
        parsed.jobs, parsed.kinds = JOBS[:1], KINDS[:1]
    folders = sorted(lesson_folders().values())
    names = folders[1:] if parsed.lessons == ["all"] else parsed.lessons
    parsed.lessons = [f for f in folders if f in names or f.partition("-")[0] in names]
    if len(parsed.lessons) != len(names):
        parser.error(f"--lessons {' '.join(names)}: there are {', '.join(folders)}")
    return parsed


def geometric_mean(ratios: Sequence[float]) -> float:
    return prod(ratios) ** (1 / len(ratios))


def measure(folder: str, parsed: argparse.Namespace) -> Row:
    """Measure one lesson."""
    n = parsed.submissions
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        place = Path(name)
        classes = lay_out_classes(place, folder, n)
        if "wrong" in parsed.kinds:
            grade(classes["wrong"], folder, jobs=2)  # records what the known mistakes reply
        times: dict[tuple[str, int], float] = {}
        memory, parts = dict.fromkeys(parsed.jobs, 0.0), {}
        for _ in range(parsed.rounds):
            for kind in ("stock-1", "stock"):
                run = partial(nbgrader, classes[kind], "autograde", folder, "--force")
                note(times, (kind, 1), run)
            for jobs in parsed.jobs:
                for kind in ("solved-1", *parsed.kinds):
                    peak = note(times, (kind, jobs), partial(grade, classes[kind], folder, jobs))
                    memory[jobs] = max(memory[jobs], peak)
                    if (kind, jobs) == ("solved", 1):
                        parts = mean_parts(classes[kind])
        right = ("stock-1", "stock", "solved-1", "solved")
        confirm_full_points([classes[kind] for kind in right], folder)
    first, each = {}, {kind: {} for kind in KINDS}
    for jobs in parsed.jobs:
        one, all_n = times["solved-1", jobs], times["solved", jobs]
        first[jobs] = one - (all_n - one) / (n - 1)  # seconds of a run without a submission
        for kind in parsed.kinds:
            each[kind][jobs] = (times[kind, jobs] - first[jobs]) / n
    stock = (times["stock", 1] - times["stock-1", 1]) / (STOCK_CLASS - 1)
    return Row(folder, stock, **each, before_the_first=first, memory=memory, parts=parts)


def lay_out_classes(place: Path, folder: str, n: int) -> dict[str, Path]:
    """Lay out a course folder for every class that is graded, by its kind."""
    module = next(name for name, other in lesson_folders().items() if other == folder)
    solved, empty = notebook_with(folder, module, {}), notebook_with(folder, module, {})
    empty.cells = []
    classes = {
        "solved-1": [solved],
        "solved": [solved] * n,
        "wrong": [notebook_with(folder, module, bug.answer) for bug in spread(bugs_of(module), n)],
        "empty": [empty] * n,
    }
    release(place / "released", folder)
    places = {kind: lay_out(place / kind, folder, books) for kind, books in classes.items()}
    for kind, k in (("stock-1", 1), ("stock", STOCK_CLASS)):
        places[kind] = lay_out(place / kind, folder, [solved] * k, STOCK)
    return places


def release(place: Path, folder: str) -> None:
    """Make a course folder with the lesson as it is released, and nobody in it."""
    shutil.copytree(ROOT / "solutions" / folder, place / "solutions" / folder)
    shutil.copy(ROOT / "nbgrader_config.py", place)
    nbgrader(place, "generate_assignment", folder)


def spread(bugs: Sequence[Bug], n: int) -> list[Bug]:
    """Choose n of the museum's bugs, from its beginning to its end."""
    return [bugs[number * len(bugs) // n] for number in range(n)]


def mean_parts(place: Path) -> dict[str, float]:
    """Average the seconds of each part of judging over the results that were kept."""
    files = (place / "grading" / "results").rglob("*.json")
    seconds = [json.loads(file.read_text())["result"]["seconds"] for file in files]
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
    """Write all answers, one of them perhaps wrong, into the lesson as students get it."""
    written = by_grade_id(module, answer)
    notebook = nbformat.read(ROOT / "lessons" / folder / f"{module}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = written.get(cell.id, cell.source)
    return notebook


def lay_out(
    place: Path, folder: str, notebooks: Sequence[nbformat.NotebookNode], more: str = ""
) -> Path:
    """Copy the course folder `released`, with a class in it and `more` in its configuration."""
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
    """Judge a class and write its gradebook as if nothing were kept; return the peak of megabytes."""
    options = ["--judge-again", "--force", "--jobs", str(jobs)]
    return run(place, [sys.executable, "-m", "autograder", "grade", folder, *options])


def run(place: Path, command: Sequence[str]) -> float:
    """Run a command; return the peak of the megabytes of all its processes together."""
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
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{text[-3000:]}")
    return max(peaks)


def watch_memory(root: int, peaks: list[float]) -> None:
    """Note the memory of a process and all that descend from it, until it ends."""
    while Path(f"/proc/{root}/status").exists():
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = status.read_text().rpartition(")")[2].split()[1]
                parents[int(status.parent.name)] = int(parent)
            except OSError:  # it has ended
                continue
        family, more = {root}, {root}
        while more:
            more = {child for child, parent in parents.items() if parent in more} - family
            family |= more
        peaks.append(sum(map(megabytes, family)))
        time.sleep(INTERVAL)


def megabytes(process: int) -> float:
    """Read the memory of one process; pages that several share are divided among them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def confirm_full_points(places: Sequence[Path], folder: str) -> None:
    """Stop unless all solved submissions got full points: else two ways that grade differently would
    be compared."""
    from nbgrader.api import Gradebook

    for place in places:
        with Gradebook(f"sqlite:///{place / 'grading' / 'gradebook.db'}") as gradebook:
            scores = {one.score for one in gradebook.assignment_submissions(folder)}
        if scores != {10.0}:
            raise SystemExit(f"{place.name}: solved submissions were graded {sorted(scores)}")


if __name__ == "__main__":
    sys.exit(main())
