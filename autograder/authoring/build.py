"""Build what changed: `autograder build [--force] [LESSON ...]`, or `make build`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat

from autograder.authoring import screenshot
from autograder.authoring.export import module_text
from autograder.authoring.notebook import execute, to_text, why_stale, write_notebook
from autograder.authoring.pages import PAGES, PICTURES
from autograder.authoring.record import recorded_text
from autograder.authoring.release import student_notebook
from autograder.authoring.released import released_text
from autograder.authoring.source import Course, Lesson, LessonError


def main(arguments: list[str]) -> int:
    """Build the lessons that are named, or all; the exit status is 1 when one cannot be built."""
    parser = argparse.ArgumentParser(prog="autograder build", description=__doc__)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 03-kv-cache or 03")
    parser.add_argument("--force", action="store_true", help="execute what did not change, too")
    chosen = parser.parse_args(arguments)
    course = Course(Path(__file__).resolve().parents[2])
    try:
        for folder in _folders(course, chosen.lessons):
            build(course.read(folder), chosen.force)
        for picture, draw in PICTURES.items():
            write_atomically(course.root / picture, draw(course))
        if said := screenshot.bring_up_to_date(course):
            print(said, flush=True)
        for page, with_part in PAGES.items():
            path = course.root / page
            write_atomically(path, with_part(path.read_text(encoding="utf-8"), course))
    except LessonError as error:
        print(f"cannot build {error}", file=sys.stderr)
        return 1
    return 0


def _folders(course: Course, names: list[str]) -> list[str]:
    """In the course's order, because a lesson imports what earlier lessons export."""
    folders = course.folders()
    chosen = set()
    for name in names:
        matching = [folder for folder in folders if name in (folder, folder[:2])]
        chosen.add(matching[0] if matching else name)
    return sorted(chosen) if names else folders


def build(lesson: Lesson, force: bool = False) -> None:
    """Bring everything that is built from a lesson up to date, and say what was done.

    Raises:
        LessonError: it cannot be built; every built file is as before.
    """
    notebook = write_notebook(lesson)
    reason = "asked to" if force else _why_stale(lesson, notebook)
    student = student_notebook(lesson, notebook)
    done = []
    with _restored_on_failure(lesson.exported, lesson.recorded):
        # The module comes first: with it, the notebook runs as later lessons will see it.
        if write_atomically(lesson.exported, module_text(lesson)):
            done.append(f"exported {lesson.exported.name}")
        recorded = recorded_text(lesson)
        if recorded is not None and write_atomically(lesson.recorded, recorded):
            done.append(f"recorded {lesson.recorded.name}")
        if reason:
            print(f"{lesson.folder}: executing, since {reason}", flush=True)
            start = time.monotonic()
            execute(notebook, lesson)
            done.append(f"executed in {time.monotonic() - start:.0f} s")
            write_atomically(lesson.solved, to_text(notebook))
    if write_atomically(lesson.student, student):
        done.append("released the student's notebook")
    if write_atomically(lesson.released, released_text(lesson, student)):
        done.append(f"recorded its graded cells in {lesson.released.name}")
    print(f"{lesson.folder}: {', '.join(done) or 'up to date'}", flush=True)


@contextmanager
def _restored_on_failure(*files: Path) -> Iterator[None]:
    """Put files back as they were before the block if it fails; remove those that were not there."""
    before = {file: file.read_text(encoding="utf-8") if file.exists() else None for file in files}
    try:
        yield
    except BaseException:
        for file, text in before.items():
            if text is None:
                file.unlink(missing_ok=True)
            else:
                write_atomically(file, text)
        raise


def _why_stale(lesson: Lesson, notebook: nbformat.NotebookNode) -> str | None:
    if not lesson.solved.exists():
        return "it is new"
    try:
        committed = nbformat.read(lesson.solved, as_version=4)
    except (ValueError, nbformat.ValidationError):
        return "its notebook cannot be read"
    return why_stale(committed, notebook, lesson.course)


def write_atomically(path: Path, text: str) -> bool:
    """Write a file whole or not at all, and only when it changes; say whether it did."""
    if path.exists() and path.read_bytes() == text.encode():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(text.encode())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return True
