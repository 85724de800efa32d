"""What students get holds no answer, no hidden test, and no name that stands only there."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from autograder.authoring.leaks import leaks, secrets_of
from autograder.authoring.notebook import write_notebook
from autograder.authoring.release import student_notebook
from lessons import COURSE, FOLDERS, ROOT, lay_out_fixture_course

RELEASED = sorted((ROOT / "lessons").rglob("*.ipynb"))


@pytest.fixture(scope="module")
def secrets():
    return secrets_of(COURSE.read(folder) for folder in FOLDERS)


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_a_released_notebook_holds_no_secret(path, secrets):
    assert leaks(nbformat.read(path, as_version=4), secrets) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_solved_notebook_is_full_of_secrets(folder, secrets):
    """So the scan does see what it looks for."""
    lesson = COURSE.read(folder)
    kinds = {leak.split(":")[0] for leak in leaks(write_notebook(lesson), secrets)}
    assert kinds >= {"forbidden", "line"}


@pytest.fixture
def lesson(tmp_path, fixture_checks):
    return lay_out_fixture_course(tmp_path).read("00-tiny")


@pytest.fixture
def released(lesson) -> nbformat.NotebookNode:
    notebook = nbformat.reads(student_notebook(lesson, write_notebook(lesson)), as_version=4)
    assert leaks(notebook, secrets_of([lesson])) == []
    return notebook


@pytest.mark.parametrize(
    ("planted", "leak"),
    [
        (new_code_cell("hidden_helper = 1"), "name: hidden_helper"),
        (new_code_cell("x.fsum"), "name: fsum"),
        (new_code_cell("grade('tiny.doubles')"), "string: tiny.doubles"),
        (new_markdown_cell("Try `return math.fsum([x,  x])`."), "line: returnmath.fsum([x,x])"),
        (new_code_cell("### BEGIN SOLUTION"), "forbidden: BEGIN SOLUTION"),
        (new_markdown_cell("### END HIDDEN TESTS"), "forbidden: HIDDEN TESTS"),
        (new_code_cell("import autograder"), "forbidden: autograder"),
        (
            new_code_cell(outputs=[new_output("stream", text="hidden_helper")]),
            "name: hidden_helper",
        ),
        (new_code_cell(metadata={"note": "hidden_helper"}), "name: hidden_helper"),
    ],
)
def test_a_planted_leak_is_found(released, lesson, planted, leak):
    released.cells.append(planted)
    assert leak in leaks(released, secrets_of([lesson]))


def test_a_name_that_a_lesson_shows_is_no_secret(lesson):
    secrets = secrets_of([lesson])
    assert "double" not in secrets.names  # the solution calls it, and students see its signature
    assert {"hidden_helper", "fsum", "grade"} <= secrets.names
