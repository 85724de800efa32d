"""Release the student's notebook by nbgrader's own step, on a copy and without a gradebook."""

from __future__ import annotations

import tempfile
from pathlib import Path

from nbformat import NotebookNode

from autograder.authoring.notebook import to_text
from autograder.authoring.source import Lesson, LessonError


def student_notebook(lesson: Lesson, solved: NotebookNode) -> str:
    """Write the student's notebook as `nbgrader generate_assignment` does; return its text.

    It works in a folder of its own with the course's `nbgrader_config.py`, so no gradebook is
    needed, made or changed.

    Raises:
        LessonError: nbgrader refused the notebook.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(lesson.course.root)).load_config()
    with tempfile.TemporaryDirectory(prefix="second-token-") as place:
        config.CourseDirectory.root = place
        config.GenerateAssignment.no_database = True
        config.SaveCells.enabled = False
        source = Path(place) / "solutions" / lesson.folder / lesson.solved.name
        source.parent.mkdir(parents=True)
        source.write_text(to_text(solved), encoding="utf-8")
        course_directory = CourseDirectory(config=config)
        course_directory.assignment_id = lesson.folder
        try:
            GenerateAssignment(coursedir=course_directory, config=config).start()
        except NbGraderException as error:
            raise LessonError(f"{lesson.folder}: nbgrader does not release it: {error}") from error
        released = Path(place) / "lessons" / lesson.folder / lesson.student.name
        return released.read_text(encoding="utf-8")
