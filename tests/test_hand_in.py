"""Hand in with confidence: a fresh run, what is right and what is not, a receipt, an exit code."""

import hashlib
import json

import nbformat
import pytest
from student_folder import course_command, edit, kernel, lay_out

from autograder.assignment import MAX_FILE
from autograder.authoring.notebook import to_text
from course.files.notebooks import read_cells
from course.files.released import find_lesson, released_lessons
from course.handing_in.command import MAX_BYTES, code_hash, find_notebook
from course.handing_in.graded_cells import compare_cells
from course.handing_in.in_notebook import unsaved_answers
from lessons import COURSE, FOLDERS

START = find_lesson("00")


@pytest.fixture
def notebook(tmp_path):
    """Lesson 00, solved, without the cells that only draw."""
    path = lay_out(tmp_path, "00-start")
    keep_what_is_graded(path)
    return path


def keep_what_is_graded(path):
    """Leave out the cells that only draw, and take their time for it."""
    whole = nbformat.read(path, as_version=4)
    whole.cells = [
        cell
        for cell in whole.cells
        if "nbgrader" in cell.metadata or "export" in cell.metadata.get("tags", [])
    ]
    imports = nbformat.v4.new_code_cell("from course.checks import start as checks")
    whole.cells.insert(0, imports)
    path.write_text(to_text(whole), encoding="utf-8")


def wrong(path) -> list[str]:
    return [fact.words for fact in compare_cells(START, read_cells(path)) if not fact.right]


def test_every_lesson_is_recorded_in_its_order():
    assert [lesson.folder for lesson in released_lessons().values()] == FOLDERS
    assert all(sum(cell.points for cell in one.graded) == 10 for one in released_lessons().values())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_released_notebook_has_every_graded_cell_unchanged(folder):
    lesson = COURSE.read(folder)
    (fact,) = compare_cells(find_lesson(folder), read_cells(lesson.student))
    assert fact.right


def test_the_size_that_is_read_is_the_judges():
    assert MAX_BYTES == MAX_FILE


def test_a_changed_graded_cell_is_named(notebook):
    edit(notebook, "checks.flops_of_any_product(", "1 or checks.flops_of_any_product(")
    assert wrong(notebook) == [
        "flops_of_any_product: this graded cell was changed. Grading uses the released one."
    ]


def test_missing_and_doubled_cells_are_named(notebook):
    whole = nbformat.read(notebook, as_version=4)
    by_name = {cell.id: cell for cell in whole.cells}
    whole.cells.remove(by_name["matmul_bytes"])
    whole.cells.append(nbformat.from_dict({**by_name["flops_of_any_product"], "id": "copy"}))
    notebook.write_text(to_text(whole), encoding="utf-8")
    assert wrong(notebook) == [
        "matmul_bytes: this cell is missing. Copy it from a fresh download of the lesson.",
        "flops_of_any_product: there are 2 such cells; delete those that are copies.",
    ]


def test_an_answer_that_ran_otherwise_than_the_file_holds_is_unsaved(notebook):
    cells = read_cells(notebook)
    answer = next(cell["source"] for cell in cells if "def matmul_flops" in cell["source"])
    assert unsaved_answers(cells, [answer]) == []
    assert unsaved_answers(cells, [answer + "\n# newer", answer]) == []
    assert unsaved_answers(cells, [answer, answer + "\n# newer"]) == ["matmul_flops"]
    assert unsaved_answers(cells, ["%time 1", "def other(): pass"]) == []


def test_outputs_that_are_saved_meanwhile_change_nothing_and_code_does(notebook):
    before = code_hash(read_cells(notebook))
    whole = nbformat.read(notebook, as_version=4)
    whole.cells[0].outputs = [nbformat.v4.new_output("stream", text="autosaved")]
    notebook.write_text(to_text(whole), encoding="utf-8")
    assert code_hash(read_cells(notebook)) == before
    edit(notebook, "def matmul_bytes", "def  matmul_bytes")
    assert code_hash(read_cells(notebook)) != before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("77", "no lesson '77'; there are: 00-start, "),
        ("00", "there is no 00-start/start.ipynb here"),
        ("nowhere.ipynb", "there is no file nowhere.ipynb"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path, monkeypatch, asked, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        find_notebook(asked)


def test_the_commands_are_listed(tmp_path):
    done = course_command(cwd=tmp_path)
    assert done.returncode == 0
    assert "hand-in" in done.stdout
    assert course_command("hand-on", cwd=tmp_path).returncode == 2


def test_lessons_are_opened_only_where_they_lie(tmp_path):
    done = course_command("lab", "--no-browser", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"There is no lessons/00-start/start.ipynb in {tmp_path}: run this where the lessons lie.\n"
    )


def test_what_is_no_notebook_is_said_in_one_line(tmp_path):
    (tmp_path / "start.ipynb").write_text("{")
    done = course_command("hand-in", "start.ipynb", cwd=tmp_path)
    assert done.returncode == 1
    assert "is no notebook that can be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_notebook_that_is_fit_gets_a_receipt_and_exit_code_0(notebook):
    done = course_command("hand-in", "00", cwd=notebook.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 of 7 visible checks pass" in done.stdout
    receipt = json.loads((notebook.parent / "start.receipt.json").read_text())
    assert receipt["sha256"] == hashlib.sha256(notebook.read_bytes()).hexdigest()
    assert receipt["code_sha256"] == code_hash(read_cells(notebook))
    assert receipt["fit"] is True
    assert receipt["versions"]["torch"]
    assert set(receipt["checks"].values()) == {"passes"}


@pytest.mark.slow
def test_hand_in_in_a_notebook_says_what_fails_and_does_not_recurse(tmp_path):
    """The last cell, as the fresh kernel meets it again, with a wrong answer and a cell that raises."""
    wrong_bytes = "def matmul_bytes(m, k, n, bytes_per_element):\n    return 7\n"
    hand_in = "import course\n\ncourse.hand_in()"
    path = lay_out(tmp_path, "00-start", "1 / 0", hand_in, matmul_bytes=wrong_bytes)
    keep_what_is_graded(path)
    whole = nbformat.read(path, as_version=4)
    whole.cells += [nbformat.v4.new_code_cell(source) for source in ("1 / 0", hand_in)]
    path.write_text(to_text(whole), encoding="utf-8")
    with kernel(path) as run:
        said = run(hand_in)
    assert "5 of 7 visible checks pass" in said
    assert "bytes_of_three_matrices (2 of 10 points): " in said
    assert f"It stops in cell {len(whole.cells) - 1}: ZeroDivisionError: division by zero" in said
    assert said.count("Not ready to hand in yet") == 1
    assert json.loads((path.parent / "start.receipt.json").read_text())["fit"] is False


@pytest.mark.slow
def test_hand_in_does_nothing_where_no_student_has_the_notebook_open(notebook):
    with kernel(cwd=notebook.parent) as run:
        assert run("import course\ncourse.hand_in()") == ""
    assert not (notebook.parent / "start.receipt.json").exists()
