"""Write the README's table of lessons from the lessons' own first cells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autograder.authoring.notebook import badge
from autograder.authoring.source import Course, Lesson, LessonError

BEGIN, END = "<!-- lessons: `make build` writes this table -->\n", "<!-- end of lessons -->\n"


def with_lesson_table(readme: str, course: Course) -> str:
    """Put the table of all lessons into the README's text.

    Raises:
        LessonError: a lesson does not say its time, or what is built in it.
        ValueError: the README has no place for the table.
    """
    before, begun, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"README.md needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{lesson_table(course, course.folders())}\n\n{END}{after}"


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
    build, time = said(lesson, "You build"), said(lesson, "Time")
    minutes = time.replace(" minutes", " min")
    return f"| {title} | {build} | {minutes} | {badge(lesson.course, lesson.folder)} |"


def said(lesson: Lesson, name: str) -> str:
    """Find what a lesson's opening says of itself: "75 minutes" of "**Time:** 75 minutes."."""
    opening = " ".join(lesson.cells[0].source.split())
    found = re.search(rf"\*\*{name}:\*\* (.+?)\.( |$)", opening)
    if not found:
        raise LessonError(f"{lesson.folder}, cell 1: it does not say '**{name}:** …'")
    return found[1]
