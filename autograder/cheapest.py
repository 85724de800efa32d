"""Judge the cheapest wrong function for each check: `autograder cheapest [LESSON ...]`.

What is the cheapest wrong function that passes this check alone? Each lesson's file `cheapest.py` answers
that for every check of it, in cells that begin with the check and a few words:

    # %% within_budget_and_room: one token for whoever is first
    def plan_step(queue, budget, room):
        return [(queue[0].number, 1)]

What stands before the first of these cells belongs to each of them. Each is handed in alone, in the
released notebook with nothing else written, before the check's test cell; and then all of a lesson
together. The points that they get stand in docs/grading.md: 0, but where a few lines do show the
property. The exit code is 1 when one gets more than MOST_ALONE, or those of a lesson more than
MOST_TOGETHER.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tqdm import tqdm

import autograder.lessons
from autograder.assignment import read_assignment, text_of
from autograder.diagnosis.grading_tables import FILE, ROOT, replace_table
from autograder.judge import grade_one
from autograder.lessons import hidden_checks, lesson_folders, lesson_named
from autograder.result import Result
from autograder.sandbox.launch import Launcher
from autograder.session import Start
from course.files.writing import write_whole

MOST_ALONE, MOST_TOGETHER = 1.0, 2.0
"""The most points, of 10, that one of these may get, and all of a lesson together."""
SECRET = b"cheapest"
HEAD = re.compile(r"^# %% (?P<check>\w+): (?P<words>.+)\n", re.MULTILINE)
StartFor = Callable[[Path], AbstractContextManager[Start]]
"""`Launcher.start_for` of a lesson."""


@dataclass(frozen=True)
class Cheat:
    """A wrong function that costs next to nothing.

    Attributes:
        check: the name of the check that it aims at, without the lesson.
        words: what it is, in a few words.
        source: the cell.
    """

    check: str
    words: str
    source: str


def main(arguments: list[str]) -> int:
    """Judge the cheats of the lessons named, or of all, and write the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="autograder cheapest", description=__doc__.split("\n")[0])
    names = "such as 03 or 03-kv-cache; left out: every lesson"
    parser.add_argument("lesson", nargs="*", type=lesson_named, help=names)
    options = parser.parse_args(arguments)
    known, too_many = dict(_known_rows()), 0
    for lesson in options.lesson or lesson_folders():
        with closing(Launcher(lesson)) as launcher:
            known[lesson] = rows = rows_of(lesson, launcher.start_for)
        print("\n".join(rows))
        too_many += sum(points_in(row) > most_of(row) for row in rows)
    rows = [row for lesson in lesson_folders() for row in known.get(lesson, [])]
    page = replace_table(FILE.read_text(encoding="utf-8"), "cheapest", "\n".join([*TITLES, *rows]))
    write_whole(FILE, replace_table(page, "forgeable", forgeable_table()).encode())
    return int(too_many > 0)


def cheats_of(lesson: str) -> list[Cheat]:
    """Read the cheapest wrong functions for the checks of a lesson.

    Raises:
        ValueError: the lesson has no check of that name.
    """
    path = Path(autograder.lessons.__file__).parent / lesson / "cheapest.py"
    if not path.exists():
        return []
    _, _, code = path.read_text(encoding="utf-8").split('"""', 2)  # behind the file's docstring
    shared, *parts = HEAD.split(code)
    cheats = [
        Cheat(check, words.strip(), f"{shared}{source}".strip())
        for check, words, source in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]
    for cheat in cheats:
        if cheat.check not in hidden_checks(lesson):
            raise ValueError(f"{path}: {lesson} has no check {cheat.check!r}")
    return cheats


TITLES = ("| lesson, check | worth | the cheapest wrong function | gets |", "|---|---|---|---|")
TOGETHER = "all of these"


def rows_of(lesson: str, start_for: StartFor) -> list[str]:
    """Judge each cheat of a lesson alone, and all together; return the rows of the table."""
    worth = {question.check: question.points for question in _assignment(lesson).questions}
    number, rows = lesson_folders()[lesson][:2], []
    cheats = cheats_of(lesson)
    for cheat in tqdm(cheats, desc=lesson, unit="cheat", disable=None):
        points = judge_cheats(lesson, [cheat], start_for).points
        rows.append(
            f"| {number} {cheat.check} | {worth[cheat.check]:g} | {cheat.words} | {points:g} |"
        )
    points = judge_cheats(lesson, cheats, start_for).points
    rows.append(f"| {number} {TOGETHER} | {sum(worth.values()):g} | | {points:g} |")
    return rows


def forgeable_table() -> str:
    """Write which questions have no truth, by lesson: their evidence is judged by itself, so that code
    which takes over the student's process and makes it up can pass."""
    lines = ["| lesson | at most | questions |", "|---|---|---|"]
    for lesson, folder in lesson_folders().items():
        checks = hidden_checks(lesson)
        open_ones = [q for q in _assignment(lesson).questions if checks[q.check].truth is None]
        points, names = sum(q.points for q in open_ones), ", ".join(q.check for q in open_ones)
        lines.append(f"| {folder} | {points:g} | {names} |")
    return "\n".join(lines)


def points_in(row: str) -> float:
    """Return the points that a row of the table says."""
    return float(row.rstrip("| ").rpartition("|")[2])


def most_of(row: str) -> float:
    """Return the most points that this row may say."""
    return MOST_TOGETHER if TOGETHER in row else MOST_ALONE


def judge_cheats(lesson: str, cheats: Sequence[Cheat], start_for: StartFor) -> Result:
    """Judge the released notebook with these cells, each before the test cell of its check."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{lesson}.ipynb")
        file.write_text(json.dumps(handed_in(lesson, cheats)), encoding="utf-8")
        with start_for(file.parent) as start:
            return grade_one(file, _assignment(lesson), start, SECRET, names=False)


def handed_in(lesson: str, cheats: Iterable[Cheat]) -> dict:
    """Return the released notebook with these cells, each before the test cell of its check."""
    cheats, cells = list(cheats), []
    notebook = json.loads(_released(lesson).read_text(encoding="utf-8"))
    tests = _assignment(lesson).tests
    for cell in notebook["cells"]:
        check = tests.get(text_of(cell.get("source")).strip())
        cells += [_code_cell(cheat.source) for cheat in cheats if cheat.check == check]
        cells.append(deepcopy(cell))
    return {**notebook, "cells": cells}


def _code_cell(source: str) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


@cache
def _assignment(lesson: str):
    return read_assignment(_released(lesson))


def _released(lesson: str) -> Path:
    return ROOT / "lessons" / lesson_folders()[lesson] / f"{lesson}.ipynb"


def _known_rows() -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of each lesson that stand in docs/grading.md."""
    text = FILE.read_text(encoding="utf-8")
    for lesson, folder in lesson_folders().items():
        yield lesson, re.findall(rf"^\| {folder[:2]} \w.*\|$", text, re.MULTILINE)
