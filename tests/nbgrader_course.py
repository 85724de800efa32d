"""A course folder of its own for one lesson, graded by nbgrader's own commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup
from filelock import FileLock
from nbgrader.api import Gradebook, MissingEntry
from patience import PATIENCE

from autograder.authoring.source import Lesson
from lessons import RELEASES, ROOT


@dataclass(frozen=True)
class CourseFolder:
    """One lesson in a folder with nbgrader's configuration."""

    lesson: Lesson
    place: Path

    @classmethod
    def lay_out(cls, lesson: Lesson, place: Path) -> CourseFolder:
        """Configure it, and release the lesson: once in a session of tests, and then by copying."""
        if RELEASES not in os.environ:
            return cls(lesson, place).release()
        once = Path(os.environ[RELEASES]) / lesson.folder
        with FileLock(f"{once}.lock"):
            if not once.exists():
                cls(lesson, Path(f"{once}.new")).release().place.rename(once)
        return cls(lesson, shutil.copytree(once, place, dirs_exist_ok=True))

    def release(self) -> CourseFolder:
        """Write nbgrader's configuration and the lesson's text there, and release the lesson."""
        shutil.copytree(self.lesson.text.parent, self.place / "solutions" / self.lesson.folder)
        shutil.copy(ROOT / "nbgrader_config.py", self.place)
        done = self.run("generate_assignment", self.lesson.folder)
        assert done.returncode == 0, done.stderr
        return self

    def run(
        self, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        """One of nbgrader's commands."""
        return subprocess.run(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=self.place,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def autograde(
        self, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        return self.run("autograde", self.lesson.folder, *arguments, environment=environment)

    def submitted(self, student: str) -> Path:
        """The file that a student hands in; its folder is there."""
        folder = self.place / "grading" / "submitted" / student / self.lesson.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / self.lesson.student.name

    def hand_in(self, student: str, content: nbformat.NotebookNode | bytes) -> Path:
        """Write a student's file; a notebook without nbformat's repairs."""
        file = self.submitted(student)
        data = content if isinstance(content, bytes) else nbformat.v4.writes(content).encode()
        file.write_bytes(data)
        return file

    def points(self, student: str) -> dict[str, float] | None:
        """Check by check, from the gradebook; None when there is no submission in it."""
        with Gradebook(f"sqlite:///{self.place / 'grading' / 'gradebook.db'}") as gradebook:
            try:
                found = gradebook.find_submission_notebook(
                    self.lesson.module, self.lesson.folder, student
                )
            except MissingEntry:
                return None
            return {grade.name: grade.score for grade in found.grades}

    def graded(self, student: str) -> nbformat.NotebookNode:
        """The notebook that formgrader shows."""
        return nbformat.read(self.graded_place(student), as_version=4)

    def graded_place(self, student: str) -> Path:
        """Its file."""
        return self._place("autograded", student, ".ipynb")

    def feedback(self, student: str) -> Path:
        """The page that the student gets."""
        return self._place("feedback", student, ".html")

    def feedback_text(self, student: str) -> str:
        """Every word of that page, as its reader sees it."""
        page = self.feedback(student).read_text(encoding="utf-8")
        return BeautifulSoup(page, "html.parser").body.get_text()

    def _place(self, step: str, student: str, ending: str) -> Path:
        folder = self.place / "grading" / step / student / self.lesson.folder
        return folder / f"{self.lesson.module}{ending}"
