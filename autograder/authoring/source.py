"""Read a lesson's text, and refuse what cannot be built, naming lesson and cell."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jupytext
from IPython.core.inputtransformer2 import TransformerManager

from autograder.lessons import find, lesson_folders, module_of
from autograder.syntax import parse
from course.checks.recorded import path_of

TAGS = {"setup", "export"}
SOLUTION, HIDDEN_TESTS = "SOLUTION", "HIDDEN TESTS"
STUB = "raise NotImplementedError()"  # what nbgrader puts in a solution's place
POINTS = 10


class LessonError(Exception):
    """A lesson that cannot be built; the message names lesson and cell and says what is wrong."""


@dataclass(frozen=True)
class Course:
    """The folders of a course: lesson texts, releases, exported modules."""

    root: Path

    def folders(self) -> list[str]:
        """List the lessons' folders, such as "03-kv-cache", in their order."""
        return list(lesson_folders(self.root / "solutions").values())

    def read(self, folder: str) -> Lesson:
        """Read the lesson in that folder.

        Raises:
            LessonError: it has no text, or one that is refused.
        """
        return read_lesson(self, folder)

    @property
    def readme(self) -> Path:
        return self.root / "README.md"

    @property
    def recorded(self) -> Path:
        """Runs of benchmarks that were kept, a JSON file each."""
        return self.root / "benchmarks" / "recorded"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What pyproject.toml says."""
        with open(self.root / "pyproject.toml", "rb") as file:
            return tomllib.load(file)

    @property
    def project(self) -> dict[str, Any]:
        """What it says of the project."""
        return self.settings["project"]


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson's text, with what its author said about it.

    Attributes:
        number: counted from 1, in the text as in the notebooks.
        kind: "markdown" or "code".
        points: of a graded cell, else None. Of a markdown cell they are given by hand.
        solution: whether a student fills it.
    """

    number: int
    kind: str
    source: str
    tags: tuple[str, ...] = ()
    grade_id: str | None = None
    points: float | None = None
    solution: bool = False

    @property
    def name(self) -> str:
        """How messages speak of it: "cell 7 (causal_mask)"."""
        return f"cell {self.number}" + (f" ({self.grade_id})" if self.grade_id else "")

    @property
    def is_written(self) -> bool:
        """Whether a student writes prose into it, which is graded by hand."""
        return self.kind == "markdown" and self.points is not None

    @property
    def answer(self) -> str:
        """The source without the markers around its solution."""
        markers = (f"### BEGIN {SOLUTION}", f"### END {SOLUTION}")
        return "\n".join(line for line in self.source.splitlines() if line.strip() not in markers)


@dataclass(frozen=True)
class Lesson:
    """A lesson whose text was accepted. `folder` is "03-kv-cache", `module` is "kv_cache"."""

    course: Course
    folder: str
    cells: tuple[Cell, ...]

    @property
    def number(self) -> str:
        """ "03" of "03-kv-cache"."""
        return self.folder[:2]

    @property
    def module(self) -> str:
        return module_of(self.folder)

    @property
    def answer_cells(self) -> tuple[Cell, ...]:
        """The cells that are exported: those that students fill, and those tagged for it."""
        return tuple(cell for cell in self.cells if cell.solution or "export" in cell.tags)

    @property
    def text(self) -> Path:
        return self.course.root / "solutions" / self.folder / f"{self.module}.py"

    @property
    def solved(self) -> Path:
        return self.text.with_suffix(".ipynb")

    @property
    def student(self) -> Path:
        return self.course.root / "lessons" / self.folder / f"{self.module}.ipynb"

    @property
    def exported(self) -> Path:
        return self.course.root / "course" / "minigpt" / f"{self.module}.py"

    @property
    def recorded(self) -> Path:
        """The oracle's answers to the lesson's visible checks."""
        return path_of(self.module, self.course.root / "course" / "checks" / "recorded")

    @property
    def released(self) -> Path:
        """What students' machines know of the released lesson."""
        return path_of(self.module, self.course.root / "course" / "checks" / "released")

    @property
    def title(self) -> str:
        """The lesson's only H1, without its number."""
        heading = next(h for cell in self.cells for h in headings(cell))
        return re.sub(rf"^(Lesson )?{self.number}\b[\s:.·–—-]*", "", heading)


def headings(cell: Cell) -> list[str]:
    """Find the H1 headings of a markdown cell."""
    if cell.kind != "markdown":
        return []
    prose = re.sub(r"^```.*?^```", "", cell.source, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^# +(.+?) *$", prose, flags=re.MULTILINE)


def split_solutions(source: str) -> tuple[str, list[str]]:
    """Take the regions between `### BEGIN SOLUTION` and `### END SOLUTION` out of a cell.

    Returns:
        What is left, with one `raise NotImplementedError()` where each solution stood; the regions.

    Raises:
        ValueError: a marker that is unclosed, nested, stray, or not alone on its line.
    """
    rest: list[str] = []
    regions: list[list[str]] = []
    opened_at = 0
    for number, line in enumerate(source.splitlines(), start=1):
        marker = re.search(rf"(BEGIN|END) {SOLUTION}", line)
        if marker and line.strip() != f"### {marker[0]}":
            raise ValueError(
                f"line {number} holds {marker[0]!r}, which nbgrader takes for a marker; "
                f"a marker is '### {marker[0]}' alone on its line"
            )
        match (marker and marker[1], bool(opened_at)):
            case ("BEGIN", True):
                raise ValueError(
                    f"### BEGIN {SOLUTION} in line {number} stands inside the region "
                    f"that line {opened_at} began"
                )
            case ("BEGIN", False):
                opened_at = number
                regions.append([])
                rest.append(line[: len(line) - len(line.lstrip())] + STUB)
            case ("END", False):
                raise ValueError(f"### END {SOLUTION} in line {number} closes nothing")
            case ("END", True):
                opened_at = 0
            case (_, True):
                regions[-1].append(line)
            case _:
                rest.append(line)
    if opened_at:
        raise ValueError(f"### BEGIN {SOLUTION} in line {opened_at} is never closed")
    return "\n".join(rest), ["\n".join(lines) for lines in regions]


def parse_python(source: str) -> ast.Module:
    """Parse a code cell, magics included. Raises SyntaxError."""
    return parse(TransformerManager().transform_cell(source))


def read_lesson(course: Course, folder: str) -> Lesson:
    """Read and check one lesson; see `Course.read`."""
    if folder not in course.folders():
        present = ", ".join(course.folders()) or "none"
        raise LessonError(f"there is no lesson {folder!r} in solutions/; there are: {present}")
    lesson = Lesson(course, folder, ())
    try:
        text = lesson.text.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LessonError(f"{folder}: its text must be {_short(lesson.text, course)}") from None
    except UnicodeDecodeError as error:
        raise LessonError(f"{folder}: {lesson.text.name} is not UTF-8: {error}") from None
    cells = tuple(_read_cells(folder, text))
    lesson = Lesson(course, folder, cells)
    _check(lesson)
    return lesson


def _short(path: Path, course: Course) -> str:
    return path.relative_to(course.root).as_posix()


def _refuse(folder: str, cell: Cell, what: str) -> NoReturn:
    raise LessonError(f"{folder}, {cell.name}: {what}")


def _read_cells(folder: str, text: str) -> Iterator[Cell]:
    cells = jupytext.reads(text, fmt="py:percent").cells
    if cells and cells[0].cell_type == "raw":  # jupytext's header, which JupyterLab may have added
        cells = cells[1:]
    for number, read in enumerate(cells, start=1):
        metadata = dict(read.metadata)
        metadata.pop("lines_to_next_cell", None)
        bare = Cell(number, read.cell_type, read.source)
        if "incorrectly_encoded_metadata" in metadata:
            options = metadata["incorrectly_encoded_metadata"]
            _refuse(folder, bare, f"its options are no valid JSON: {options}")
        if read.cell_type not in ("code", "markdown"):
            _refuse(folder, bare, f"a lesson has code and markdown, not {read.cell_type!r} cells")
        if unknown := set(metadata) - {"tags", "nbgrader"}:
            named = ", ".join(f"{key}={metadata[key]!r}" for key in sorted(unknown))
            _refuse(folder, bare, f"a cell has the options tags and nbgrader, not {named}")
        yield _with_options(folder, bare, metadata)


def _with_options(folder: str, cell: Cell, metadata: dict) -> Cell:
    tags, options = metadata.get("tags", []), metadata.get("nbgrader", {})
    if not isinstance(tags, list) or not set(tags) <= TAGS:
        _refuse(folder, cell, f"its tags may be {sorted(TAGS)}, got {tags!r}")
    if not isinstance(options, dict):
        _refuse(folder, cell, f"nbgrader={options!r} must be an object")
    if "nbgrader" in metadata and set(options) not in (
        {"grade_id", "solution"},
        {"grade_id", "points"},
    ):
        _refuse(
            folder, cell, f'nbgrader wants a "grade_id" and "solution" or "points", got {options}'
        )
    if options and (tags or (cell.kind != "code" and "points" not in options)):
        _refuse(
            folder, cell, "only code cells without tags are solutions, and none with tags is graded"
        )
    grade_id = options.get("grade_id")
    if options and not (isinstance(grade_id, str) and grade_id.isidentifier()):
        _refuse(folder, cell, f"a grade_id is a name such as causal_mask, got {grade_id!r}")
    cell = Cell(cell.number, cell.kind, cell.source, tuple(tags), grade_id)
    if options.get("solution", True) is not True:
        _refuse(folder, cell, f'"solution" is true or left out, got {options["solution"]!r}')
    points = options.get("points")
    if "points" in options and (type(points) not in (int, float) or not 0 < points <= POINTS):
        _refuse(folder, cell, f"points are above 0 and at most {POINTS}, got {points!r}")
    return Cell(
        cell.number, cell.kind, cell.source, cell.tags, grade_id, points, "solution" in options
    )


def _check(lesson: Lesson) -> None:
    folder, cells = lesson.folder, lesson.cells
    if not any(headings(cell) for cell in cells):
        raise LessonError(f"{folder}: it has no title; begin it with a markdown cell '# Title'")
    code = [cell for cell in cells if cell.kind == "code"]
    if not code or code[0].tags != ("setup",):
        where = f", {code[0].name}" if code else ""
        raise LessonError(f'{folder}{where}: the first code cell must have tags=["setup"]')
    for cell in code[1:]:
        if "setup" in cell.tags:
            _refuse(folder, cell, "only the first code cell is tagged setup")
    for grade_id, count in Counter(cell.grade_id for cell in cells if cell.grade_id).items():
        if count > 1:
            same = [cell for cell in cells if cell.grade_id == grade_id]
            _refuse(folder, same[1], f"cell {same[0].number} has the same grade_id {grade_id!r}")
    for cell in cells:
        _check_regions(folder, cell)
    judged = [cell for cell in code if cell.points is not None]
    for cell in judged:
        _check_graded(lesson, cell)
    total = sum(cell.points for cell in judged)
    if total != POINTS:
        graded = ", ".join(f"{c.name}: {c.points:g}" for c in judged) or "no graded cell"
        raise LessonError(f"{folder}: its points add up to {total:g}, not {POINTS} ({graded})")


def _check_regions(folder: str, cell: Cell) -> None:
    """Refuse misplaced markers, and code that is no Python with its answer or without it."""
    try:
        shown, solutions = split_solutions(cell.source)
    except ValueError as error:
        _refuse(folder, cell, str(error))
    if HIDDEN_TESTS in cell.source:
        _refuse(folder, cell, "the builder writes the hidden tests, from the grade_id")
    if solutions and not cell.solution:
        _refuse(folder, cell, 'a solution needs nbgrader={"grade_id": "...", "solution": true}')
    if cell.solution and not solutions:
        _refuse(folder, cell, "a solution cell needs ### BEGIN SOLUTION … ### END SOLUTION")
    if cell.kind != "code":
        return
    for source, which in ((cell.source, ""), (shown, " once answers are out")):
        try:
            parse_python(source)
        except SyntaxError as error:
            line = (error.text or "").strip()
            _refuse(
                folder, cell, f"no valid Python{which}: {error.msg} in line {error.lineno}: {line}"
            )


def _check_graded(lesson: Lesson, cell: Cell) -> None:
    """Refuse a graded cell without a hidden check, or that does not call its visible check."""
    try:
        find(f"{lesson.module}.{cell.grade_id}")
    except ValueError as error:
        _refuse(lesson.folder, cell, str(error))
    if cell.grade_id not in {_called(call) for call in _calls(cell.source)}:
        _refuse(lesson.folder, cell, f"it does not call the visible check {cell.grade_id}")


def _calls(source: str) -> list[ast.Call]:
    return [node for node in ast.walk(parse_python(source)) if isinstance(node, ast.Call)]


def _called(call: ast.Call) -> str | None:
    """ "f" of f(...) and of module.f(...)."""
    return getattr(call.func, "attr", getattr(call.func, "id", None))
