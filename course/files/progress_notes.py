"""Remember which visible checks passed when, in a small file beside the student's lessons.

It is written when a check passes for the first time in a notebook that a student has open, and nowhere
else. It is never sent anywhere, and never graded.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path

from course.files.notebooks import NOTES, lessons_folder, own_notebook, read_notes, write_notes
from course.files.released import find_lesson

FILE = "progress.json"

Passed = dict[str, dict[str, str]]
"""When each check first passed, in local time (ISO 8601), by module and check."""


def remember_pass(check: str) -> None:
    """Note that a visible check passed, where a student has the notebook open; never raises."""
    with contextlib.suppress(Exception):  # no note is worth a cell that stops
        notebook = own_notebook()
        if notebook is None:
            return
        lesson = find_lesson(notebook.name)
        if check not in [cell.name for cell in lesson.graded]:
            return
        path = lessons_folder(notebook) / NOTES / FILE
        passed = read_passed(path)
        if check not in passed.get(lesson.module, {}):
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            passed.setdefault(lesson.module, {})[check] = now
            write_notes(path, passed)


def read_passed(path: Path) -> Passed:
    """Read the notes; anything else in the file is left out."""
    return {
        module: {
            check: time
            for check, time in checks.items()
            if isinstance(time, str) and _is_time(time)
        }
        for module, checks in read_notes(path).items()
        if isinstance(checks, dict)
    }


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
