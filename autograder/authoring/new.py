"""Lay out a new lesson with all its files: `autograder new 08-sliding-window "A cache that never grows"`.

What stands there then can be built, checked and graded: one function, one graded cell, one known mistake.
Replace them by the lesson's own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autograder.authoring.source import Course, LessonError
from autograder.lessons import FOLDER, SOLUTIONS, module_of

TEMPLATE = Path(__file__).parent / "template"
"""The files of a new lesson; `NAME`, `FOLDER`, `NUMBER`, `NEXT` and `TITLE` stand for its own."""


def main(arguments: list[str]) -> int:
    """Lay out the lesson that is named; the exit status is 1 when that is refused."""
    parser = argparse.ArgumentParser(prog="autograder new", description=__doc__)
    parser.add_argument("folder", metavar="NN-NAME", help="such as 08-sliding-window")
    parser.add_argument("title", help="such as 'A cache that never grows'")
    options = parser.parse_args(arguments)
    try:
        for path in lay_out(Course(SOLUTIONS.parent), options.folder, options.title):
            print(path)
    except LessonError as error:
        print(f"nothing was written: {error}", file=sys.stderr)
        return 1
    print(f"Next: write the lesson's text, then `make build ARGS={options.folder[:2]}`.")
    return 0


def lay_out(course: Course, folder: str, title: str) -> list[str]:
    """Write the files of a new lesson, and return their paths in the course.

    Raises:
        LessonError: the name is none for a lesson, or it, its number or a file is there already.
    """
    if not FOLDER.fullmatch(folder):
        raise LessonError(f"a lesson's folder is named like 08-sliding-window, not {folder!r}")
    name, number = module_of(folder), folder[:2]
    for known in course.folders():
        if known[:2] == number or module_of(known) == name:
            raise LessonError(f"there is {known} already; {folder} needs another number and name")
    words = {"NAME": name, "FOLDER": folder, "NUMBER": number, "TITLE": title}
    words["NEXT"] = f"{int(number) + 1:02}"
    files = {
        _filled(path.relative_to(TEMPLATE).as_posix().removesuffix(".txt"), words): _filled(
            path.read_text(encoding="utf-8"), words
        )
        for path in sorted(TEMPLATE.rglob("*.txt"))
    }
    if present := [path for path in files if (course.root / path).exists()]:
        raise LessonError(f"{', '.join(present)} is there already")
    for path, text in files.items():
        (course.root / path).parent.mkdir(parents=True, exist_ok=True)
        (course.root / path).write_text(text, encoding="utf-8")
    return list(files)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
