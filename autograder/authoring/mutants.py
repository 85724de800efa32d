"""Find wrong answers that no hidden check catches: `autograder mutants [LESSON ...] [--jobs N]`.

Every one-place mutant of a lesson's answers (see `mutation`) takes its place in the solved notebook, and
the lesson's hidden checks judge it. One that passes them all survives. Either a check is missing, or
the change breaks nothing that is promised; then an entry in the lesson's `equivalent.toml` says why:

    [[equivalent]]
    function = "split_heads"
    before = "return x.transpose(1, 2)"
    after = ["return x.transpose(-3, 2)"]
    reason = "The same axis, counted from the other end."

The exit code is 1 when a survivor has no entry, or when an entry names no survivor.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

from autograder import lessons
from autograder.authoring.mutation import Mutant, mutants_of
from autograder.authoring.source import Cell, Course
from autograder.lessons import SOLUTIONS, hidden_checks, lesson_folders, lesson_named
from autograder.lessons.assembly import run_cells
from autograder.run_record import FOLDER, Store
from autograder.sources import digest_of
from course.measure.machine import one_thread

SEEDS = (1, 2, 3)
"""What `autograder.lessons.grade` draws from."""
SLOWER = 5
"""A mutant may take this many times the processor time of the reference answers, and half a second."""
MEMORY = 8 * 2**30
"""Bytes that one mutant may hold."""
WAITING = 20
"""Seconds on a clock for each second of processor time: a mutant that waits for ever ends, too."""
ALIVE, DEAD = b"alive", b"dead"
"""What a store keeps of a mutant."""
SURVIVED = 86
"""Exit code of a process whose mutant passed; any other end is the mutant's death."""


def main(arguments: list[str]) -> int:
    """Judge the mutants of the lessons named, or of all. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="autograder mutants", description=__doc__.split("\n")[0])
    names = "such as 03 or 03-kv-cache; left out: every lesson"
    parser.add_argument("lesson", nargs="*", type=lesson_named, help=names)
    parser.add_argument("--jobs", type=int, default=1, help="mutants judged at the same time")
    options = parser.parse_args(arguments)
    store, lessons = Store(FOLDER), options.lesson or lesson_folders()
    reports = [judge(name, store, options.jobs) for name in lessons]
    return int(any(reports))


def judge(lesson: str, store: Store, jobs: int = 1) -> list[str]:
    """Judge every mutant of a lesson that was not judged before, and print what became of all.

    Args:
        store: keeps what became of each, by the sources on which that rests.

    Returns:
        A line for each survivor without an entry, and for each entry without a survivor.
    """
    mutants = mutants_of_lesson(lesson)
    checks = digest_of([*hidden_checks(lesson).values(), passes])
    keys = {mutant: digest_of([checks, *SEEDS], texts=mutants[mutant]) for mutant in mutants}

    def survives(mutant: Mutant) -> bool:
        return passes(lesson, mutants[mutant], mutant.function.partition(".")[0])

    if left := [mutant for mutant in mutants if store.get(keys[mutant]) is None]:
        with one_thread():  # a forked process does not have this one's threads
            survived = set(survivors(left, survives, seconds_for(lesson), jobs, lesson))
        for mutant in left:
            store.put(keys[mutant], ALIVE if mutant in survived else DEAD)
    alive = [mutant for mutant in mutants if store.get(keys[mutant]) == ALIVE]
    lines = open_ends(map(str, alive), read_entries(entries_file(lesson)))
    print(f"{lesson}: {len(mutants)} mutants, {len(alive)} survive", *lines, sep="\n  ")
    return lines


def mutants_of_lesson(lesson: str) -> dict[Mutant, list[str]]:
    """The mutants of a lesson's answers, each with the sources of the answer cells of its notebook."""
    cells = _answer_cells(lesson)
    sources = [cell.answer for cell in cells]
    return {
        mutant: [*sources[:number], mutant.source, *sources[number + 1 :]]
        for number, cell in enumerate(cells)
        if cell.solution
        for mutant in mutants_of(cell.source)
    }


def seconds_for(lesson: str) -> float:
    """The processor time that the checks of one mutant may take.

    Raises:
        ValueError: the reference answers fail a check, so that no mutant could tell anything.
    """
    sources = [cell.answer for cell in _answer_cells(lesson)]
    passes(lesson, sources)  # fills caches that every mutant then finds filled
    start = time.process_time()
    if not passes(lesson, sources):
        raise ValueError(f"the reference answers of {lesson} fail a hidden check")
    return 0.5 + SLOWER * (time.process_time() - start)


def _answer_cells(lesson: str) -> tuple[Cell, ...]:
    return Course(SOLUTIONS.parent).read(lesson_folders()[lesson]).answer_cells


def passes(lesson: str, sources: Sequence[str], suspect: str = "") -> bool:
    """Whether a notebook of these answer cells passes every hidden check at every seed.

    The checks that ask for the suspect, a function or class, come first: it falls sooner.
    """
    names = run_cells(lesson, sources)
    checks = sorted(hidden_checks(lesson).values(), key=lambda check: suspect not in check.needs)
    return all(check.judge(names, seed).score == 1 for seed in SEEDS for check in checks)


def survivors(
    mutants: Sequence[Mutant],
    survives: Callable[[Mutant], bool],
    seconds: float,
    jobs: int = 1,
    title: str = "",
) -> list[Mutant]:
    """The mutants that survive, in their order; each is tried in a process of its own.

    One that raises, crashes, takes more than its seconds of processor time or too much memory is dead.
    """
    fork = multiprocessing.get_context("fork")
    gc.freeze()  # or a collection in each process copies all that this one holds
    left, running, alive = list(reversed(mutants)), {}, set()
    tqdm.monitor_interval = 0  # no thread of its own: this process forks
    with tqdm(total=len(mutants), desc=title, file=sys.stdout) as progress:
        while left or running:
            while left and len(running) < jobs:
                process = fork.Process(target=_try, args=(survives, left[-1], seconds))
                process.start()
                running[process.sentinel] = process, left.pop()
            for sentinel in wait(running):
                process, mutant = running.pop(sentinel)
                process.join()
                if process.exitcode == SURVIVED:
                    alive.add(mutant)
                progress.update()
    gc.unfreeze()
    return [mutant for mutant in mutants if mutant in alive]


def _try(survives: Callable[[Mutant], bool], mutant: Mutant, seconds: float) -> None:
    """Try one mutant in this process, and exit with SURVIVED if it passes."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for number, timer, limit in (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),  # processor time
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING * seconds),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, limit)
    if survives(mutant):
        sys.exit(SURVIVED)


def entries_file(lesson: str) -> Path:
    """Where a lesson says why mutants of it survive."""
    return Path(lessons.__file__).parent / lesson / "equivalent.toml"


def read_entries(file: Path) -> set[str]:
    """The mutants that a file explains, named as `str(mutant)` names them.

    Raises:
        ValueError: an entry that lacks a part, has another one, or explains a mutant again.
    """
    if not file.exists():
        return set()
    named: set[str] = set()
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["equivalent"]:
        if set(entry) != {"function", "before", "after", "reason"} or not entry["reason"]:
            raise ValueError(f"{file}: function, before, after, reason are wanted, got {entry}")
        for after in entry["after"]:
            name = f"{entry['function']}: {entry['before']}  ->  {after}"
            if name in named:
                raise ValueError(f"{file}: two entries for {name}")
            named.add(name)
    return named


def open_ends(alive: Iterable[str], entries: set[str]) -> list[str]:
    """The survivors that no entry explains, and the entries that explain no survivor."""
    alive = list(alive)
    unexplained = [f"UNEXPLAINED  {name}" for name in alive if name not in entries]
    return unexplained + [f"STALE ENTRY  {name}" for name in sorted(entries - set(alive))]
