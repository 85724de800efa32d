"""Find the submissions to a lesson in the students' folders, whatever these hold."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

_NO_ID = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters and bytes that are not UTF-8; a file's name may have them, a gradebook's id not."""


@dataclass(frozen=True)
class Submission:
    """The content of a student's folder for one lesson.

    Attributes:
        student: the id, which is the folder's name.
        folder: the folder.
        notebook: the file to judge; None if none has the right name.
        others: the names of other notebooks in the folder.
        problem: what the instructor has to fix before it can be judged; "" if nothing.
    """

    student: str
    folder: Path
    notebook: Path | None
    others: tuple[str, ...] = ()
    problem: str = ""


def find_submissions(directory: CourseDirectory, lesson: str, name: str) -> Iterator[Submission]:
    """Yield the submissions to a lesson, ordered by the students' ids.

    Args:
        directory: the course's folders.
        lesson: the name of its folder, such as "03-kv-cache".
        name: the name of the released notebook.
    """
    step = directory.submitted_directory
    pattern = directory.format_path(step, "(?P<student>[^/]+)", lesson, escape=True)
    anyones = directory.format_path(step, "*", lesson)
    for place in sorted({*glob(anyones), *_in_closed_folders(anyones)}):
        if (match := re.fullmatch(pattern, place)) and not os.path.isfile(place):
            yield _look_into(Path(place), match["student"], name)


def _look_into(folder: Path, student: str, name: str) -> Submission:
    notebook = folder / name
    try:
        names = sorted(file for file in os.listdir(folder) if file.endswith(".ipynb"))
        if notebook.name not in names:
            return Submission(student, folder, None, tuple(names))
        if stat.S_ISREG(os.lstat(notebook).st_mode):
            os.close(os.open(notebook, os.O_RDONLY))
    except OSError as error:
        why = f"{error.strerror}: this account has to be able to read {error.filename}"
        return Submission(student, folder, None, problem=why)
    if _NO_ID.search(student):
        why = "a folder's name with such characters is not an id: rename the folder"
        return Submission(student, folder, None, problem=why)
    return Submission(student, folder, notebook)


def _in_closed_folders(pattern: str) -> list[str]:
    """List the lesson's folders in students' folders that this account cannot read."""
    above, name = os.path.split(pattern)
    return [
        os.path.join(folder, name)
        for folder in glob(above)
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK)
    ]
