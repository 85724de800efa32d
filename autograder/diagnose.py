"""Judge single wrong answers, and print what their students would be told: `autograder diagnose FOLDER`.

The folder holds a file for each lesson, such as `kv_cache.py`, of cells that begin with a name and with
what is wrong, in words that the judge never sees:

    # %% one_too_few: steps one token less than asked
    def generate_cached(model, prompt, n_new, cache=None):
        ...

Each cell is put into a student's notebook with right answers, where its functions are defined, and is
judged alone. So one reads what was wrong beside what was said about it, and counts.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from autograder.assignment import read_assignment, source_of
from autograder.diagnosis.known_replies import KnownReplies
from autograder.judge import grade_one
from autograder.lessons import SOLUTIONS, lesson_folders, lesson_named
from autograder.lessons.assembly import by_grade_id
from autograder.needed_cells import names_of
from autograder.result import Result
from autograder.run_record import FOLDER
from autograder.sandbox.launch import Launcher

RELEASED = SOLUTIONS.parent / "lessons"
SECRET = b"diagnose"
HEAD = re.compile(r"^# %% (?P<name>\w+): (?P<words>.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: its name, what is wrong in words, and the cell."""

    name: str
    words: str
    source: str


def main(arguments: list[str]) -> int:
    """Judge the answers of a folder and print what was said. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="autograder diagnose", description=__doc__.split("\n")[0])
    parser.add_argument(
        "folder", type=Path, help="with a file for each lesson, such as kv_cache.py"
    )
    names = "such as 03 or 03-kv-cache; left out: all that have a file"
    parser.add_argument("lesson", nargs="*", type=lesson_named, help=names)
    options = parser.parse_args(arguments)
    files = {lesson: options.folder / f"{lesson}.py" for lesson in lesson_folders()}
    lessons = options.lesson or [lesson for lesson, file in files.items() if file.exists()]
    if missing := [name for name in lessons if not files[name].exists()]:
        parser.error(f"{options.folder} has no {missing[0]}.py")
    if not lessons:
        parser.error(
            f"{options.folder} has no file that is named as a lesson is, such as kv_cache.py"
        )
    for lesson in lessons:
        with closing(Launcher(lesson)) as launcher:
            answers = list(read_answers(files[lesson]))
            for wrong in tqdm(answers, desc=lesson, unit="answer", disable=None):
                print("\n".join(report(lesson, wrong, judge(lesson, wrong, launcher))), flush=True)
    return 0


def read_answers(file: Path) -> Iterator[Wrong]:
    """Read the cells of a file.

    Raises:
        ValueError: a cell does not begin as it should, or there is none.
    """
    before, *parts = HEAD.split(file.read_text(encoding="utf-8"))
    if before.strip() or not parts:
        raise ValueError(f"{file}: a cell begins with a line such as '# %% name: what is wrong'")
    for i in range(0, len(parts), 3):
        yield Wrong(*map(str.strip, parts[i : i + 3]))


def judge(lesson: str, wrong: Wrong, launcher: Launcher) -> Result:
    """Judge a notebook with one wrong answer in it."""
    folder = lesson_folders()[lesson]
    assignment = read_assignment(RELEASED / folder / f"{lesson}.ipynb")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, f"{lesson}.ipynb")
        file.write_text(json.dumps(notebook_with(lesson, wrong.source)), encoding="utf-8")
        with launcher.start_for(file.parent) as start:
            return grade_one(file, assignment, start, SECRET, known=KnownReplies(lesson, FOLDER))


def notebook_with(lesson: str, source: str) -> dict:
    """Return a student's solved notebook with a source behind what defines the same names, in the same
    cell."""
    path = RELEASED / lesson_folders()[lesson] / f"{lesson}.ipynb"
    notebook, right = json.loads(path.read_text(encoding="utf-8")), by_grade_id(lesson, {})
    wanted = names_of(source).binds
    changed = next((name for name in right if wanted & names_of(right[name]).binds), None)
    if changed is None:
        raise ValueError(f"no answer cell of {lesson} defines any of {', '.join(sorted(wanted))}")
    right[changed] = f"{right[changed]}\n\n\n{source}\n"
    for cell in notebook["cells"]:
        cell["source"] = right.get(cell["id"], source_of(cell))
    return notebook


def report(lesson: str, wrong: Wrong, result: Result) -> list[str]:
    """Write what was wrong, and below it what was said at each question that lost points."""
    lost = [answer for answer in result.answers if answer.score < 1]
    lines = [f"{lesson} {wrong.name}: {wrong.words} [{result.points:g} points] {result.reason}"]
    for answer in lost:
        name = answer.bug or answer.family
        lines.append(f"    {answer.check}{f' [{name}]' * bool(name)}: {answer.message}")
    return lines if lost else [*lines, "    NOT CAUGHT"]
