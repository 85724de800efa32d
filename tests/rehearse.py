"""Grade a large simulated class in every way that the docs name, and compare with what is known of it.

    python tests/rehearse.py 03-kv-cache --students 200 --seed 1 [--ways one-job four-jobs …]
    python tests/rehearse.py 03-kv-cache --merge 10000

It takes hours, so it is no part of `make test`, which does the same with small classes. Each way begins
with the class as it was handed in, and ends with a line: the seconds, and what is otherwise than it has
to be, or than in the first way. Exit code 0: nothing is.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import chdir, closing
from multiprocessing import resource_tracker
from pathlib import Path

import nbformat
from grading_runs import no_process_left, result_file, results, start, wait_until
from nbgrader_course import CourseFolder
from simulated import differences, read_expected, standings_in
from submissions import solved
from test_dask import cluster, in_sandbox
from test_grade_trouble import assert_nothing_is_half

from autograder.__main__ import main as autograder
from autograder.classroom.course import open_course
from autograder.classroom.simulation.folder import EXPECTED, MARK
from lessons import COURSE

KILLS, KILLS_OF_WORKERS = 20, 5
ALL_CELLS = """
from autograder import examiner
examiner.needed_cells = lambda cells, *_: tuple(cells)
"""
"""Put in front of nbgrader's configuration: every cell runs, not only what decides."""


def grade(course: CourseFolder, *options: str) -> None:
    """Grade to the end, however long it takes."""
    start(course, *options).communicate()


# --- the ways ------------------------------------------------------------------------------------


def two_jobs(course: CourseFolder) -> None:
    grade(course, "--jobs", "2")


def one_job(course: CourseFolder) -> None:
    grade(course, "--jobs", "1")


def four_jobs(course: CourseFolder) -> None:
    """For one result there is no room at first."""
    expected = read_expected(course.place)
    student = next(name for name, said in expected.items() if said["state"] == "graded")
    in_the_way = result_file(course, student)
    (in_the_way / "full").mkdir(parents=True)
    grade(course, "--jobs", "4")
    wrong = differences(expected, standings_in(course.place))
    assert [line.partition(",")[0] for line in wrong] == [f"{student}: not graded"], wrong
    shutil.rmtree(in_the_way)
    grade(course, "--jobs", "4")


def three_parts(course: CourseFolder) -> None:
    """Each part is judged in a folder of its own."""
    for number in (1, 2, 3):
        with tempfile.TemporaryDirectory() as place:
            part = copy(course.place, Path(place, "part"))
            grade(part, "--shard", f"{number}/3")
            shutil.copytree(results(part), results(course), dirs_exist_ok=True)
    grade(course, "--kept-only")


def dask(course: CourseFolder) -> None:
    """Two workers judge, and are killed now and then."""
    with tempfile.TemporaryDirectory() as scratch, cluster(Path(scratch)) as client:
        grader = start(course, "--dask", client.scheduler.address)
        for _ in range(KILLS_OF_WORKERS):
            time.sleep(10)
            for worker in in_sandbox(client) if grader.poll() is None else ():
                os.kill(worker, signal.SIGKILL)
        grader.communicate()


def kills(course: CourseFolder) -> None:
    """The grader is killed at random moments, then grades to the end."""
    draw = random.Random("kills")
    for _ in range(KILLS):
        end = time.monotonic() + draw.uniform(1, 60)
        grader = start(course)
        wait_until(lambda end=end: time.monotonic() > end, grader)
        grader.kill()
        grader.communicate()
        assert_nothing_is_half(course)
    grade(course)


def two_graders(course: CourseFolder) -> None:
    graders = [start(course, "--jobs", "1"), start(course, "--jobs", "1")]
    for grader in graders:
        grader.communicate()


def all_cells(course: CourseFolder) -> None:
    """Nothing is left out that a student handed in."""
    config = course.place / "nbgrader_config.py"
    config.write_text(ALL_CELLS + config.read_text(encoding="utf-8"), encoding="utf-8")
    grade(course)


WAYS = {
    way.__name__.replace("_", "-"): way
    for way in (two_jobs, one_job, four_jobs, three_parts, dask, kills, two_graders, all_cells)
}

# --- one way after another -----------------------------------------------------------------------


def copy(place: Path, to: Path) -> CourseFolder:
    lesson = json.loads((place / EXPECTED).read_text(encoding="utf-8"))[MARK]["lesson"]
    return CourseFolder(COURSE.read(lesson), shutil.copytree(place, to))


def judged(course: CourseFolder) -> dict[str, list]:
    """What was found of each file, without the seconds and what was printed."""
    read = {
        file.name: json.loads(file.read_bytes())["result"]
        for file in results(course).glob("*.json")
    }
    return {name: [result["outcome"], result["answers"]] for name, result in read.items()}


def rehearse(options: argparse.Namespace, place: Path) -> bool:
    """Go each way; tell whether everything came out as it has to."""
    clean = place / "class"
    many = ["--students", str(options.students), "--seed", str(options.seed)]
    if code := autograder(["simulate", options.lesson, *many, "--into", str(clean)]):
        sys.exit(code)
    with (clean / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(f"c.Judge.cell_seconds = c.Judge.question_seconds = {options.seconds}\n")
        # A loop in an answer may take every question of a lesson to its end, and the next one be asked.
        config.write(f"c.Judge.submission_seconds = {24 * options.seconds}\n")
    first: dict[str, list] = {}
    well = True
    for name in options.ways:
        course, begun = copy(clean, place / name), time.monotonic()
        with no_process_left():
            WAYS[name](course)
        seconds = time.monotonic() - begun
        wrong = differences(read_expected(course.place), standings_in(course.place))
        found = judged(course)
        first = first or found
        others = [key for key in found if found[key] != first.get(key)]
        well &= not wrong and not others and len(found) == len(first)
        print(
            f"{options.lesson}, {options.students} students, {name}: {seconds:.0f} s, "
            f"{len(found)} results, {len(wrong)} not as known, {len(others)} not as in the first way",
            *wrong,
            *(f"{found[key]}\n  first: {first.get(key)}" for key in others),
            sep="\n  ",
            flush=True,
        )
    return well


def merge(options: argparse.Namespace, place: Path) -> bool:
    """Time the gradebook for a class whose results were all judged elsewhere."""
    lesson = COURSE.read(options.lesson)
    course = CourseFolder.lay_out(lesson, place / "course")
    file = course.hand_in("s0", solved(lesson))
    grade(course)
    notebook = nbformat.read(file, as_version=4)
    with chdir(course.place), closing(open_course().lesson(lesson.folder).desk()) as desk:
        kept = desk.kept(file)
        for number in range(1, options.merge):
            notebook.metadata["student"] = number
            path = course.submitted(f"s{number}")
            nbformat.write(notebook, path)
            desk.results.keep(desk.digest(path), kept)
    begun = time.monotonic()
    done = start(course, "--kept-only", "--json").communicate()[0]
    seconds = time.monotonic() - begun
    graded = json.loads(done)["counts"]["graded"]
    print(
        f"{graded} of {options.merge} graded in {seconds:.0f} s, {seconds / options.merge:.3f} s each"
    )
    return graded == options.merge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lesson", help="such as 03-kv-cache")
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=10, help="a cell or question may take")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--merge", type=int, help="merge as many results, and nothing else")
    options = parser.parse_args()
    resource_tracker.ensure_running()  # which a cluster starts, and which stays
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as place:
        return int(not (merge if options.merge else rehearse)(options, Path(place)))


if __name__ == "__main__":
    sys.exit(main())
