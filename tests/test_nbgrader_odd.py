"""A class in which nearly everybody hands in something odd, graded in one run of nbgrader's command.

Each gets what the work is worth, and nobody's trouble is another's.
"""

import json
import os
import re
from collections.abc import Callable

import nbformat
import pytest
from confined import needs_bubblewrap
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader_course import CourseFolder
from submissions import answers, solved, submission

from autograder.authoring.source import POINTS
from lessons import COURSE

LESSON = COURSE.read("00-start")
Notebook = nbformat.NotebookNode
pytestmark = [needs_bubblewrap, pytest.mark.slow]


def graded_cells(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def with_bom(notebook: Notebook) -> bytes:
    return b"\xef\xbb\xbf" + nbformat.v4.writes(notebook).encode()


def without_ids(notebook: Notebook) -> bytes:
    plain = json.loads(nbformat.v4.writes(notebook))
    for cell in plain["cells"]:
        del cell["id"]
    return json.dumps({**plain, "nbformat_minor": 2}).encode()


def in_format_3(notebook: Notebook) -> bytes:
    cells = [
        {"cell_type": "code", "language": "python", "outputs": [], "input": cell.source}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}).encode()


def retagged(notebook: Notebook) -> Notebook:
    """Tags that make nbgrader pass over a cell, points and flags of one's own, another kernel."""
    for cell in notebook.cells:
        nbgrader = {**cell.metadata.get("nbgrader", {}), "points": 1000, "locked": False}
        tags = ["skip-execution", "raises-exception", "remove_cell"]
        cell.metadata = {"tags": tags, "nbgrader": {**nbgrader, "schema_version": 1}}
    notebook.metadata = {"kernelspec": {"name": "bash", "display_name": "x", "language": "bash"}}
    return notebook


def one_name_for_all(notebook: Notebook) -> Notebook:
    for cell in notebook.cells:
        cell.metadata = {"nbgrader": {"grade": True, "grade_id": "same", "solution": True}}
    return notebook


def without_tests(notebook: Notebook) -> Notebook:
    tests = graded_cells(notebook)
    notebook.cells = [cell for cell in notebook.cells if cell not in tests]
    return notebook


def only_answers(notebook: Notebook) -> Notebook:
    """Without any metadata: what is left after the code was copied to a fresh notebook."""
    sources = ["import torch", *answers(LESSON).values()]
    return nbformat.v4.new_notebook(cells=[new_code_cell(source) for source in sources])


def retyped(notebook: Notebook) -> Notebook:
    for cell in graded_cells(notebook):
        cell.cell_type = "markdown"
        del cell["outputs"], cell["execution_count"]
    return notebook


def duplicated(notebook: Notebook) -> Notebook:
    notebook.cells += notebook.cells
    return notebook


def moved(notebook: Notebook) -> Notebook:
    notebook.cells.sort(key=lambda cell: cell not in graded_cells(notebook))
    return notebook


def edited(notebook: Notebook) -> Notebook:
    for cell in graded_cells(notebook):
        cell.source = "print('all right')\n1000.0"
    return notebook


def stale(notebook: Notebook) -> Notebook:
    """Results that look like points in every cell, as if they had been executed."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [new_output("execute_result", {"text/plain": "2.0"}, execution_count=1)]
    return notebook


def noisy(notebook: Notebook) -> Notebook:
    noise = (
        "import sys, warnings\nwarnings.warn('careful')\nprint('hm', file=sys.stderr)\n"
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass\n%matplotlib inline\n%time 1"
    )
    notebook.cells.insert(0, new_code_cell(noise))
    for cell in graded_cells(notebook):
        cell.outputs = [new_output("stream", name="stderr", text="a warning")]
    return notebook


def loud(notebook: Notebook) -> Notebook:
    """60 MB of outputs."""
    text = [new_output("stream", text="x" * 10**6) for _ in range(60)]
    notebook.cells.append(new_code_cell("1", outputs=text))
    return notebook


def half_a_character(notebook: Notebook) -> bytes:
    """A lone surrogate, which JSON can hold and no file in UTF-8."""
    notebook.cells += [new_markdown_cell("half: HALF"), new_code_cell("print('HALF')")]
    return nbformat.v4.writes(notebook).replace("HALF", "\\ud83d").encode()


def of_nothing_known(notebook: Notebook) -> bytes:
    plain = json.loads(nbformat.v4.writes(notebook))
    for cell in plain["cells"]:
        cell |= {"execution_count": "x", "attachments": 7}
        cell["outputs"] = [None, {"output_type": "stream"}, {"output_type": "display_data"}, 1, {}]
    plain["cells"] += [None, 3, {}, {"cell_type": "heading", "source": {"a": 1}}]
    return json.dumps({**plain, "metadata": []}).encode()


HONEST: dict[str, Callable[[Notebook], Notebook | bytes]] = {
    "byte order mark": with_bom,
    "no ids": without_ids,
    "format 3": in_format_3,
    "retagged": retagged,
    "one name for all": one_name_for_all,
    "without tests": without_tests,
    "only answers": only_answers,
    "retyped": retyped,
    "duplicated": duplicated,
    "moved": moved,
    "edited": edited,
    "noisy": noisy,
    "loud": loud,
    "half a character": half_a_character,
    "of nothing known": of_nothing_known,
    "Zoë O'Neil; $(rm -r) %": lambda notebook: notebook,
}
"""All of these did the work."""
IDLE = {
    name: HONEST[name] for name in ("retagged", "one name for all", "retyped", "duplicated")
} | {"edited": edited, "stale": stale}
"""All of these did nothing else."""
BROKEN = {
    "no JSON": (b'{"cells": [', "is not a notebook"),
    "empty": (b"", "is not a notebook"),
    "deep": (b"[" * 200_000, "is not a notebook"),
    "a list": (b"[]", "has no list of cells"),
    "UTF-16": ("{}".encode("utf-16"), "is not UTF-8"),
}


def hand_in_links(course: CourseFolder) -> None:
    """What is no file, and honest work with such things beside it."""
    course.submitted("link").symlink_to(course.hand_in("linked", solved(LESSON)))
    os.mkfifo(course.submitted("pipe"))
    course.submitted("folder").mkdir()
    beside = course.hand_in("beside", solved(LESSON)).parent
    os.mkfifo(beside / "timestamp.txt")
    os.mkfifo(beside / "pipe")
    (beside / "nowhere").symlink_to("nowhere-at-all")
    (beside / "book.db").symlink_to(course.place / "grading" / "gradebook.db")
    (beside / "answers").symlink_to(course.place / "solutions")
    helper = "from helper import matmul_flops"
    beside = course.hand_in("helper", solved(LESSON, matmul_flops=helper)).parent
    (beside / "helper.py").write_text(answers(LESSON)["matmul_flops"], encoding="utf-8")
    (beside / "torch.py").write_text("raise SystemExit('not this one')", encoding="utf-8")
    late = course.hand_in("late", solved(LESSON)).parent / "timestamp.txt"
    late.write_text("2031-02-03 04:05:06 UTC", encoding="utf-8")
    course.hand_in("no time", solved(LESSON)).with_name("timestamp.txt").write_bytes(b"\xffsoon")


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> CourseFolder:
    course = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("odd"))
    for name, form in HONEST.items():
        course.hand_in(name, form(solved(LESSON)))
    for name, form in IDLE.items():
        course.hand_in(f"idle, {name}", form(submission(LESSON, {})))
    for name, (content, _) in BROKEN.items():
        course.hand_in(name, content)
    hand_in_links(course)
    course.hand_in("renamed", solved(LESSON)).rename(course.submitted("renamed").parent / "x.ipynb")
    course.submitted("nothing")
    return course


@pytest.fixture(scope="module")
def log(course) -> str:
    """What nbgrader said while it graded them all."""
    done = course.autograde()
    assert done.returncode == 1, done.stderr  # for the one without the notebook
    feedback = course.run("generate_feedback", LESSON.folder)
    assert feedback.returncode == 0, feedback.stderr
    return done.stderr


def line_about(student: str, log: str) -> str:
    (line,) = [line for line in log.splitlines() if f" {student}: " in line]
    return line


def total(course: CourseFolder, student: str) -> float:
    return sum(course.points(student).values())


@pytest.mark.parametrize("student", [*HONEST, "linked", "beside", "helper", "late", "no time"])
def test_honest_work_gets_every_point(course, log, student):
    assert total(course, student) == POINTS
    assert f"{student}: SCORE, 10 points." in log


@pytest.mark.parametrize("name", IDLE)
def test_no_change_to_the_tests_earns_a_point(course, log, name):
    assert total(course, f"idle, {name}") == 0


@pytest.mark.parametrize("student", BROKEN)
def test_a_broken_file_gets_a_clear_line_and_no_points(course, log, student):
    line = line_about(student, log)
    assert "STUDENT_FAULT, 0 points. start.ipynb" in line
    assert BROKEN[student][1] in line
    assert total(course, student) == 0
    assert BROKEN[student][1] in course.feedback_text(student)


@pytest.mark.parametrize(
    ("student", "why"),
    [
        ("link", "cannot be opened"),
        ("pipe", "not a regular file"),
        ("folder", "not a regular file"),
    ],
)
def test_what_is_no_file_is_neither_followed_nor_waited_for(course, log, student, why):
    assert why in line_about(student, log)
    assert total(course, student) == 0


def test_a_renamed_notebook_is_named_and_costs_nobody_else(course, log):
    assert re.search(r"renamed/00-start: no start\.ipynb was handed in, but x\.ipynb", log)
    assert set(course.points("renamed").values()) == {0}
    assert not course.graded_place("renamed").exists()


def test_a_folder_without_a_notebook_is_named(course, log):
    assert re.search(r"No notebooks were matched by '.*/nothing/", log)
    assert course.points("nothing") is None


@pytest.mark.parametrize("student", [*HONEST, *(f"idle, {name}" for name in IDLE), *BROKEN])
def test_each_graded_cell_is_shown_once_with_the_points_of_the_gradebook(course, log, student):
    shown = graded_cells(course.graded(student))
    points = course.points(student)
    assert {cell.metadata.nbgrader.grade_id for cell in shown} == set(points)
    assert len(shown) == len(points)
    for cell in shown:
        said, result = cell.outputs
        assert (said.output_type, said.name) == ("stream", "stdout")
        assert float(result.data["text/plain"]) == points[cell.metadata.nbgrader.grade_id]
        assert set(cell.metadata) <= {"deletable", "editable", "nbgrader"}


def test_of_a_submission_only_the_notebook_and_its_time_are_kept(course, log):
    def kept(student: str) -> set[str]:
        return {path.name for path in course.graded_place(student).parent.iterdir()}

    assert kept("beside") == {"start.ipynb"}
    assert kept("late") == {"start.ipynb", "timestamp.txt"}


def test_a_second_run_grades_only_what_is_new(course, log):
    """nbgrader compares the times that were handed in with those that it kept."""
    course.submitted("late").with_name("timestamp.txt").write_text("2031-02-03 05:00:00 UTC")
    again = course.autograde().stderr
    assert re.findall(r"(\S+): [A-Z]+, .* points", again) == ["late"]


def test_the_secret_is_for_the_grader_alone(course, log):
    secret = course.place / "grading" / "secret"
    assert (secret.stat().st_mode & 0o777, secret.stat().st_size) == (0o600, 32)


def test_the_cells_and_outputs_are_those_that_were_handed_in(course, log):
    stale_cells = course.graded("idle, stale").cells[1:]
    handed_in = nbformat.read(course.submitted("idle, stale"), as_version=4).cells
    assert [cell.source for cell in stale_cells] == [cell.source for cell in handed_in]
    for cell, original in zip(stale_cells, handed_in, strict=True):
        if cell.cell_type == "code" and cell not in graded_cells(course.graded("idle, stale")):
            assert [output.data for output in cell.outputs] == [
                output.data for output in original.outputs
            ]


def test_too_much_output_is_cut(course, log):
    assert course.graded_place("loud").stat().st_size < 10 * 2**20
