"""Every built file is what its lesson's text says: the tests build again, in memory."""

import shutil
from pathlib import Path

import nbformat
import pytest

from autograder.authoring import screenshot
from autograder.authoring.build import write_atomically
from autograder.authoring.export import module_text
from autograder.authoring.notebook import to_text, without_execution, write_notebook
from autograder.authoring.pages import PAGES, PICTURES, with_lessons
from autograder.authoring.record import recorded_text
from autograder.authoring.release import student_notebook
from autograder.authoring.released import released_text
from autograder.authoring.source import Course, LessonError
from lessons import COURSE, FOLDERS, lay_out_fixture_course


def out_of_sync(course: Course, folder: str) -> list[str]:
    """The built files of a lesson that differ from what its text says, outputs aside."""
    lesson = course.read(folder)
    wanted = write_notebook(lesson)
    solved = to_text(without_execution(nbformat.read(lesson.solved, as_version=4)))
    pairs = {
        lesson.solved: (solved, to_text(wanted)),
        lesson.exported: (lesson.exported.read_text(encoding="utf-8"), module_text(lesson)),
        lesson.student: (
            lesson.student.read_text(encoding="utf-8"),
            student_notebook(lesson, wanted),
        ),
    }
    record = released_text(lesson, pairs[lesson.student][1])
    pairs[lesson.released] = (lesson.released.read_text(encoding="utf-8"), record)
    if (recorded := recorded_text(lesson)) is not None:
        pairs[lesson.recorded] = (lesson.recorded.read_text(encoding="utf-8"), recorded)
    return [
        path.relative_to(course.root).as_posix()
        for path, (committed, built) in pairs.items()
        if committed != built
    ]


def built_from_nothing(course: Course) -> list[str]:
    """Files where built ones stand, of which no lesson's text knows."""
    wanted: set[Path] = {course.root / "course" / "minigpt" / "__init__.py"}
    for folder in course.folders():
        lesson = course.read(folder)
        wanted |= {lesson.solved, lesson.exported, lesson.student, lesson.released}
        if recorded_text(lesson) is not None:
            wanted.add(lesson.recorded)
    patterns = (
        *("solutions/*/*.ipynb", "lessons/*/*", "course/minigpt/*.py"),
        "course/checks/recorded/*",
        "course/checks/released/*",
    )
    found = {path for pattern in patterns for path in course.root.glob(pattern)}
    checkpoints = {
        path
        for path in found  # of those who tried a lesson
        if path.name == ".ipynb_checkpoints"
        or path.parent.name == ".second-token"
        or path.name.endswith(".receipt.json")
    }
    return sorted(path.relative_to(course.root).as_posix() for path in found - wanted - checkpoints)


def test_there_are_lessons():
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_built_files_are_what_the_text_says(folder):
    assert out_of_sync(COURSE, folder) == [], "run `make build` and commit what it changed"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_solved_notebook_was_executed(folder):
    notebook = nbformat.read(COURSE.read(folder).solved, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1)), "run `make build` and commit what it changed"


@pytest.mark.parametrize("picture", PICTURES)
def test_the_pictures_of_pages_are_what_the_course_draws(picture):
    committed = (COURSE.root / picture).read_text(encoding="utf-8")
    assert committed == PICTURES[picture](COURSE), "run `make build` and commit what it changed"


def test_no_built_file_is_without_a_text():
    assert built_from_nothing(COURSE) == []


def test_the_readmes_screenshot_shows_the_lesson_as_it_is():
    assert not screenshot.is_out_of_date(COURSE), "run `make build` and commit what it changed"


@pytest.mark.parametrize("page", PAGES)
def test_what_is_built_of_a_page_is_what_lessons_and_recorded_runs_say(page):
    text = (COURSE.root / page).read_text(encoding="utf-8")
    assert text == PAGES[page](text, COURSE), "run `make build` and commit what it changed"


def test_a_lesson_that_does_not_say_its_time_is_refused(small_course):
    text = small_course.root / "solutions/00-tiny/tiny.py"
    text.write_text(text.read_text().replace("**Time:**", "**Lasts:**"))
    with pytest.raises(LessonError, match=r"00-tiny, cell 1: it does not say '\*\*Time:"):
        with_lessons(small_course.readme.read_text(), small_course)


@pytest.fixture
def small_course(tmp_path, fixture_checks) -> Course:
    """The fixture course with its built files, unexecuted."""
    course = lay_out_fixture_course(tmp_path)
    shutil.rmtree(course.root / "solutions" / "01-next-one")
    lesson = course.read("00-tiny")
    notebook = write_notebook(lesson)
    write_atomically(lesson.solved, to_text(notebook))
    write_atomically(lesson.exported, module_text(lesson))
    student = student_notebook(lesson, notebook)
    write_atomically(lesson.student, student)
    write_atomically(lesson.released, released_text(lesson, student))
    assert out_of_sync(course, "00-tiny") == []
    assert built_from_nothing(course) == []
    return course


@pytest.mark.parametrize(
    ("path", "old", "new", "differ"),
    [
        pytest.param(
            "solutions/00-tiny/tiny.py",
            "# Lesson 00: Twice",
            "# Lesson 00: Two times",
            [
                "solutions/00-tiny/tiny.ipynb",
                "course/minigpt/tiny.py",
                "lessons/00-tiny/tiny.ipynb",
                "course/checks/released/tiny.json",
            ],
            id="text",
        ),
        pytest.param(
            "solutions/00-tiny/tiny.ipynb",
            "3 doubled is",
            "three doubled is",
            ["solutions/00-tiny/tiny.ipynb"],
            id="solved notebook",
        ),
        pytest.param(
            "course/minigpt/tiny.py",
            "FACTOR = 3",
            "FACTOR = 4",
            ["course/minigpt/tiny.py"],
            id="module",
        ),
        pytest.param(
            "lessons/00-tiny/tiny.ipynb",
            '"points": 6',
            '"points": 5',
            ["lessons/00-tiny/tiny.ipynb"],
            id="student's notebook",
        ),
    ],
)
def test_an_edit_on_either_side_is_seen(small_course, path, old, new, differ):
    file = small_course.root / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert out_of_sync(small_course, "00-tiny") == differ


def test_outputs_and_widget_state_may_differ(small_course):
    path = small_course.root / "solutions/00-tiny/tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].execution_count = 7
    notebook.metadata["widgets"] = {}
    nbformat.write(notebook, path)
    assert out_of_sync(small_course, "00-tiny") == []


def test_a_built_file_without_a_text_is_seen(small_course):
    (small_course.root / "course/minigpt/old.py").touch()
    (small_course.root / "lessons/00-tiny/notes.txt").touch()
    assert built_from_nothing(small_course) == [
        "course/minigpt/old.py",
        "lessons/00-tiny/notes.txt",
    ]
