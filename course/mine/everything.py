"""Put what a student wrote in all lessons in the place of ours: for the engine, in a terminal."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

from course.files.released import released_lessons
from course.mine.choosing import choose_all

ANSWERS = "course.minigpt."


class Answer(NamedTuple):
    """A function or class that a lesson asks for, as it is used here."""

    lesson: str  # its number, such as "03"
    name: str
    yours: bool


def take_mine() -> None:
    """Put the student's functions that pass the visible checks in the place of ours. Call it before
    anything imports ours. The lessons are those in the current folder, or in `lessons` in it."""
    here = Path.cwd()
    lessons = here / "lessons" if (here / "lessons").is_dir() else here
    if not any(lessons.glob("[0-9][0-9]-*/*.ipynb")):
        sys.exit(f"--mine: no lessons in {here}; call it in the folder that holds yours")
    with redirect_stdout(sys.stderr):  # the bars; what the model writes goes to standard output
        chosen = choose_all(list(released_lessons().values()), lessons, "1")
    for module, (_, reasons) in chosen.items():
        lesson = released_lessons()[module]
        for name, why in reasons.items():
            if why.startswith("there is no"):  # no notebook of it: nothing to say
                continue
            print(f"{lesson.folder}{f', {name}' if name else ''}: ours, {why}", file=sys.stderr)


def answers_in_use() -> dict[CodeType, Answer]:
    """List the functions and classes of lessons that are loaded, by the code of each function and
    method."""
    found = {}
    for lesson in released_lessons().values():
        module = sys.modules.get(ANSWERS + lesson.module)
        for name, codes in _defined_in(module) if module else ():
            for code in codes:
                yours = code.co_filename.startswith("<your ")
                found[code] = Answer(lesson.number, name, yours)
    return found


def _defined_in(module: ModuleType) -> Iterator[tuple[str, list[CodeType]]]:
    """Yield each public function and class of a module, with the code of all that it consists of."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        parts = vars(value).values() if isinstance(value, type) else [value]
        codes = [part.__code__ for part in parts if isinstance(part, FunctionType)]
        yield name, codes


def in_words(answers: Iterable[Answer], between: str) -> str:
    """Say which lesson each answer is of, and whether it is the student's: a part for each lesson."""
    by_lesson: dict[str, list[str]] = defaultdict(list)
    for answer in sorted(set(answers)):
        by_lesson[answer.lesson].append(f"{answer.name}{' (yours)' if answer.yours else ''}")
    return between.join(f"{number} {', '.join(names)}" for number, names in by_lesson.items())


class Called:
    """Notes which answers of lessons are called while it is entered.

    Attributes:
        answers: those.
    """

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    def __enter__(self) -> Called:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: object, event: str, _: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)

    @property
    def answers(self) -> set[Answer]:
        used = answers_in_use()
        return {used[code] for code in self._codes if code in used}
