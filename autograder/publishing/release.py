"""Choose the lessons that students get, and those that are closed: their answers may be read."""

from __future__ import annotations

from dataclasses import dataclass

from autograder.authoring.source import Course, Lesson, LessonError
from autograder.lessons import module_of


@dataclass(frozen=True)
class Release:
    """The lessons that are published.

    Attributes:
        course: the instructor's repository.
        lessons: the folders of the lessons that students get, in their order.
        closed: how many of these are over, counted from the first.
    """

    course: Course
    lessons: tuple[str, ...]
    closed: int

    @property
    def order(self) -> list[str]:
        """The modules of all lessons that there are."""
        return [module_of(folder) for folder in self.course.folders()]

    @property
    def first_open(self) -> str:
        """The module of the first lesson whose answers nobody may read; "" if there is none."""
        return next(iter(self.order[self.closed :]), "")

    @property
    def secret(self) -> list[Lesson]:
        """The lessons that are open, and those that students do not have yet."""
        return [self.course.read(folder) for folder in self.course.folders()[self.closed :]]

    @property
    def later(self) -> list[str]:
        """The modules of the lessons that students do not have yet."""
        return self.order[len(self.lessons) :]


def read_release(course: Course, through: str, closed_through: str | None) -> Release:
    """Choose the lessons up to one.

    Args:
        through: the last lesson that students get.
        closed_through: the last one whose answers they get; None: the one before `through`, and "none"
            says that all are open.

    Raises:
        LessonError: there is no such lesson, or one is closed that is not published.
    """
    folders = course.folders()
    last = _place(folders, through)
    if closed_through is None:
        closed = last
    else:
        closed = 0 if closed_through == "none" else _place(folders, closed_through) + 1
    if closed > last + 1:
        raise LessonError(f"{closed_through} cannot be closed: students get lessons to {through}")
    return Release(course, tuple(folders[: last + 1]), closed)


def _place(folders: list[str], name: str) -> int:
    """Find a lesson by its folder or number."""
    places = [n for n, folder in enumerate(folders) if name in (folder, folder[:2])]
    if not places:
        raise LessonError(f"there is no lesson {name!r}; there are: {', '.join(folders)}")
    return places[0]
