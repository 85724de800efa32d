"""Read the records of the released lessons: their files, graded cells and imports of earlier lessons.

`checks/released/<lesson>.json` is built with the lesson. It holds no code, only the name, the points and
the hash of the source of each graded cell.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "checks" / "released"


@dataclass(frozen=True)
class Graded:
    """A graded cell: the name of its check, its points, the hash of its source."""

    name: str
    points: float
    sha256: str


@dataclass(frozen=True)
class Released:
    """A lesson as it was released.

    Attributes:
        module: such as "kv_cache".
        folder: such as "03-kv-cache".
        title: without its number.
        graded: its graded cells, in their order.
        solutions: the grade_ids of the cells that students fill.
        imports: what it imports from `course.minigpt`: names by module.
    """

    module: str
    folder: str
    title: str
    graded: tuple[Graded, ...]
    solutions: tuple[str, ...]
    imports: dict[str, tuple[str, ...]]

    @property
    def number(self) -> str:
        """ "03" of "03-kv-cache"."""
        return self.folder[:2]

    @property
    def file_name(self) -> str:
        """The name of the notebook's file."""
        return f"{self.module}.ipynb"


def source_hash(source: str) -> str:
    """Hash a cell's source; spaces at its ends do not count, since editors remove them."""
    return hashlib.sha256(source.strip().encode()).hexdigest()


@cache
def released_lessons() -> dict[str, Released]:
    """Return the lessons by module, in their order."""
    lessons = [_read(path) for path in FOLDER.glob("*.json")]
    return {lesson.module: lesson for lesson in sorted(lessons, key=lambda lesson: lesson.folder)}


def find_lesson(name: str) -> Released:
    """Find a lesson by its number, folder, module or file: 03, 03-kv-cache, kv_cache, kv_cache.ipynb.

    Raises:
        ValueError: there is no such lesson; the message lists those that exist.
    """
    for lesson in released_lessons().values():
        if name in (lesson.number, lesson.folder, lesson.module, lesson.file_name):
            return lesson
    folders = ", ".join(lesson.folder for lesson in released_lessons().values())
    raise ValueError(f"no lesson {name!r}; there are: {folders}")


def earlier_lessons(module: str) -> list[Released]:
    """List the lessons before one, in their order; none before a lesson without a record."""
    lessons = released_lessons()
    order = list(lessons)
    return [lessons[name] for name in order[: order.index(module)]] if module in order else []


def _read(path: Path) -> Released:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Released(
        path.stem,
        data["folder"],
        data["title"],
        tuple(Graded(*cell) for cell in data["graded"]),
        tuple(data["solutions"]),
        {module: tuple(names) for module, names in data["imports"].items()},
    )
