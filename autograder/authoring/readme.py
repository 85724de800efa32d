"""Write the README's tables: of the lessons from their own first cells, of speed from kept runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autograder.authoring.notebook import badge
from autograder.authoring.source import Course, Lesson, LessonError
from autograder.authoring.speed import speed_table


def with_tables(readme: str, course: Course) -> str:
    """Put the tables of all lessons and of measured ratios into the README's text.

    Raises:
        LessonError: a lesson does not say its time, or what is built in it.
        ValueError: the README has no place for a table.
    """
    readme = _with_table(readme, "lessons", lesson_table(course, course.folders()))
    return _with_table(readme, "speed", speed_table(course.recorded))


def _with_table(readme: str, name: str, table: str) -> str:
    """Put a table between the two lines that keep its place."""
    begin, end = f"<!-- {name}: `make build` writes this table -->\n", f"<!-- end of {name} -->\n"
    before, begun, rest = readme.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"README.md needs the lines {begin.strip()!r} and {end.strip()!r}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"


def lesson_table(course: Course, folders: Iterable[str]) -> str:
    """Write the table of these lessons.

    Raises:
        LessonError: a lesson does not say its time, or what is built in it.
    """
    rows = [row(course.read(folder)) for folder in folders]
    return "\n".join(["| lesson | you build | time | |", "|---|---|---|---|", *rows])


def row(lesson: Lesson) -> str:
    """Write one lesson's row: title, what is built, minutes, badge."""
    page = lesson.student.relative_to(lesson.course.root).as_posix()
    title = f"[{lesson.number} · {lesson.title}]({page})"
    build, time = stated(lesson, "You build"), stated(lesson, "Time")
    minutes = time.replace(" minutes", " min")
    return f"| {title} | {build} | {minutes} | {badge(lesson.course, lesson.folder)} |"


def stated(lesson: Lesson, name: str) -> str:
    """Find what a lesson's opening says of itself: "75 minutes" of "**Time:** 75 minutes."."""
    opening = " ".join(lesson.cells[0].source.split())
    match = re.search(rf"\*\*{name}:\*\* (.+?)\.( |$)", opening)
    if not match:
        raise LessonError(f"{lesson.folder}, cell 1: it does not say '**{name}:** …'")
    return match[1]
