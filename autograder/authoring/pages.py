"""Write those parts of handwritten pages that can be built: of the lessons from their own first cells, of
speed from kept runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autograder.authoring.notebook import GITHUB, badge
from autograder.authoring.picture import needs_picture, readme_picture
from autograder.authoring.source import Course, Lesson, LessonError
from autograder.authoring.speed import speed_table


def with_lessons(readme: str, course: Course) -> str:
    """Put the table of all lessons into the README's text.

    Raises:
        LessonError: a lesson does not say its time, or what is built in it.
        ValueError: the text has no place for the table.
    """
    return _with_part(readme, "lessons", lesson_table(course, course.folders()))


def with_speed(log: str, course: Course) -> str:
    """Put the table of measured ratios into the text of docs/LOG.md.

    Raises:
        ValueError: the text has no place for the table.
    """
    return _with_part(log, "speed", speed_table(course.recorded))


def with_needs(syllabus: str, course: Course) -> str:
    """Put into the text of docs/syllabus.md how long each lesson takes, and on which it stands.

    Raises:
        LessonError: a lesson does not say its time, or what it needs.
        ValueError: the text has no place for it.
    """
    rows = ["| lesson | minutes | stands on |", "|---|---|---|"]
    for lesson in map(course.read, course.folders()):
        minutes = opening_value(lesson, "Time").removesuffix(" minutes")
        needed = ", ".join(lessons_needed(lesson)) or "–"
        rows.append(f"| {lesson.number} · {lesson.title} | {minutes} | {needed} |")
    return _with_part(syllabus, "needs", "\n".join(rows))


def lessons_needed(lesson: Lesson) -> list[str]:
    """Return the numbers of the lessons on which a lesson says that it stands.

    Raises:
        LessonError: it says nothing of that.
    """
    return re.findall(r"\b\d\d\b", opening_value(lesson, "Needs"))


def _with_part(page: str, name: str, part: str) -> str:
    """Put a part between the two lines that keep its place."""
    begin, end = f"<!-- {name}: `make build` writes this part -->\n", f"<!-- end of {name} -->\n"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the page needs the lines {begin.strip()!r} and {end.strip()!r}")
    return f"{before}{begin}\n{part}\n\n{end}{after}"


def lesson_table(course: Course, folders: Iterable[str], address: str = "") -> str:
    """Write the table of these lessons.

    Args:
        address: of the students' repository; where it is on GitHub, each row ends with the badge that
            opens the lesson in Colab.

    Raises:
        LessonError: a lesson does not say its time, or what is built in it.
    """
    rows = [row(course.read(folder), address) for folder in folders]
    head = ["| lesson | you build | time |", "|---|---|---|"]
    if address.startswith(GITHUB):
        head = [f"{head[0]} |", f"{head[1]}---|"]
    return "\n".join([*head, *rows])


def row(lesson: Lesson, address: str = "") -> str:
    """Write one lesson's row: title, what is built, minutes, and the badge where it is published."""
    page = lesson.student.relative_to(lesson.course.root).as_posix()
    title = f"[{lesson.number} · {lesson.title}]({page})"
    build, time = opening_value(lesson, "You build"), opening_value(lesson, "Time")
    minutes = time.replace(" minutes", " min")
    cells = [title, build, minutes]
    if address.startswith(GITHUB):
        cells.append(badge(address, lesson.folder))
    return f"| {' | '.join(cells)} |"


def opening_value(lesson: Lesson, name: str) -> str:
    """Find what a lesson's opening says of itself: "75 minutes" of "**Time:** 75 minutes."."""
    opening = " ".join(lesson.cells[0].source.split())
    match = re.search(rf"\*\*{name}:\*\* (.+?)\.( |$)", opening)
    if not match:
        raise LessonError(f"{lesson.folder}, cell 1: it does not say '**{name}:** …'")
    return match[1]


PAGES = {"README.md": with_lessons, "docs/LOG.md": with_speed, "docs/syllabus.md": with_needs}
"""What fills in each page."""


def _draw_needs(course: Course) -> str:
    lessons = [course.read(folder) for folder in course.folders()]
    titles = {lesson.number: lesson.title for lesson in lessons}
    return needs_picture(titles, {lesson.number: lessons_needed(lesson) for lesson in lessons})


PICTURES = {
    "docs/second-token.svg": lambda course: readme_picture(),
    "docs/lessons.svg": _draw_needs,
}
"""What draws each picture of these pages."""
