"""Run `autograder grade` on a class, interrupt it, and look at what it leaves."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, closing, contextmanager, suppress
from pathlib import Path

from nbgrader_course import CourseFolder
from patience import PATIENCE

from autograder.classroom.course import open_course
from autograder.classroom.standing import Standing, standings
from lessons import ROOT

PR_SET_CHILD_SUBREAPER = 36


def start(
    course: CourseFolder,
    *arguments: str,
    environment: dict[str, str] | None = None,
    front: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Begin to grade; `front` is the program that starts the grader."""
    grader = [sys.executable, "-m", "autograder", "grade", course.lesson.folder]
    return subprocess.Popen(
        [*front, *grader, *arguments],
        cwd=course.place,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a grader, with what it printed."""
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def grade(
    course: CourseFolder, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Grade to the end."""
    return end_of(start(course, *arguments, environment=environment))


def stand(course: CourseFolder) -> dict[str, Standing]:
    """How everyone stands, by id."""
    with chdir(course.place):
        lesson = open_course().lesson(course.lesson.folder)
        with closing(lesson.desk()) as desk:
            return {found.student.id: found for found in standings(lesson, desk)}


def result_file(course: CourseFolder, student: str) -> Path:
    """Where the result of what a student handed in is kept."""
    with chdir(course.place):
        lesson = open_course().lesson(course.lesson.folder)
        with closing(lesson.desk()) as desk:
            key = desk.key(course.submitted(student))
    return results(course) / f"{key}.json"


def results(course: CourseFolder) -> Path:
    """The folder of the results that are kept."""
    return course.place / "grading" / "results" / course.lesson.module


def kept(course: CourseFolder) -> dict[str, int]:
    """When each result was written, by its file."""
    return {file.name: file.stat().st_mtime_ns for file in results(course).glob("*.json")}


def wait_until(holds: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Wait for something, at most until a process has ended."""
    end = time.monotonic() + PATIENCE
    while not holds() and (process is None or process.poll() is None):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


# --- what is left over ---------------------------------------------------------------------------


@contextmanager
def no_process_left() -> Iterator[None]:
    """Hold that whatever is started in the block has ended soon after it. Here end up those whose
    parent was killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = set(_children())
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
        with suppress(AssertionError):
            wait_until(lambda: not _living(before))
    finally:
        left = {process: _command(process) for process in _living(before)}
        for process in left:
            os.kill(process, signal.SIGKILL)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert not left


def _command(process: int) -> str:
    """What a process runs, and in which state it is."""
    with suppress(OSError):
        place = Path("/proc", str(process))
        words = (place / "cmdline").read_text().replace("\0", " ")
        return f"{words[:200]} ({(place / 'stat').read_text().rpartition(')')[2].split()[0]})"
    return "ended"


def _living(before: set[int]) -> list[int]:
    """List this process's new children that run; those that ended are taken off the list of processes."""
    living = []
    for process in set(_children()) - before:
        try:
            ended, _ = os.waitpid(process, os.WNOHANG)
        except ChildProcessError:
            continue
        if not ended:
            living.append(process)
    return living


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return [int(number) for task in tasks for number in (task / "children").read_text().split()]
