"""The progress page: the lessons, which visible checks passed when, and what is next."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from course.files.notebooks import NOTES, lessons_folder, notebook_of, own_notebook
from course.files.progress_notes import FILE, Passed, read_passed
from course.files.released import Released, released_lessons


def show_progress() -> None:
    """Draw the page in a notebook; print it elsewhere."""
    notebook = own_notebook()
    folder = lessons_folder(notebook) if notebook else find_lessons_folder()
    lessons, passed = read_progress(folder)
    if notebook is None:
        print(write_progress(lessons, passed))
        return
    from course.plots.progress import draw_progress
    from course.plots.style import show

    show(draw_progress(lessons, passed, what_is_next(lessons, passed)))


def main(arguments: list[str]) -> int:
    """`python -m course progress`: print the page. Returns 0."""
    argparse.ArgumentParser(prog="python -m course progress", description=__doc__).parse_args(
        arguments
    )
    print(write_progress(*read_progress(find_lessons_folder())))
    return 0


def find_lessons_folder() -> Path:
    """Return the folder with the lessons' folders: this one, `lessons/`, or the parent folder."""
    for place in (Path(), Path("lessons"), Path("..")):
        if any(notebook_of(lesson, place) for lesson in released_lessons().values()):
            return place
    return Path()


def read_progress(folder: Path) -> tuple[list[Released], Passed]:
    """Return the lessons whose notebooks are in a folder, or all if none is, and what passed."""
    every = list(released_lessons().values())
    present = [lesson for lesson in every if notebook_of(lesson, folder)]
    return present or every, read_passed(folder / NOTES / FILE)


def what_is_next(lessons: list[Released], passed: Passed) -> str:
    """Return a sentence that names the first check that has not passed."""
    for lesson in lessons:
        for cell in lesson.graded:
            if cell.name not in passed.get(lesson.module, {}):
                return f"Next: {cell.name}, in lesson {lesson.folder}."
    return "Every check has passed."


def write_progress(lessons: list[Released], passed: Passed) -> str:
    """Return the page as text, one line per lesson."""
    lines = []
    for lesson in lessons:
        times = passed.get(lesson.module, {})
        names = [cell.name for cell in lesson.graded]
        n_passed = sum(name in times for name in names)
        bar = "".join("#" if name in times else "." for name in names)
        lines.append(f"{lesson.number} {lesson.title:<42} {bar:<12} {n_passed} of {len(names)}")
        if n_passed:
            last = max(datetime.fromisoformat(times[n]) for n in names if n in times)
            lines[-1] += f", last on {last:%d %B at %H:%M}"
    return "\n".join([*lines, what_is_next(lessons, passed)])
