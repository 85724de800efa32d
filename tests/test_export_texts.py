"""What students wrote is exported as text: it is not run, computed, or taken for colours and HTML."""

import ast
from pathlib import Path

import pytest

from autograder.classroom.course import CannotStart
from autograder.classroom.exporting.code_for_comparison import as_python
from autograder.classroom.exporting.folders import whole_folder
from autograder.classroom.exporting.grades_table import grades_table
from autograder.classroom.exporting.gradescope import VISIBILITIES, results
from autograder.classroom.exporting.table_cells import no_formula, number
from autograder.classroom.roster import Student
from autograder.classroom.standing import Standing, State
from autograder.result import Answer, Outcome, Result


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("x = 1\ny = (x\n     % 2)", "x = 1\ny = (x\n     % 2)"),
        ("%matplotlib inline\nx = 1", "# %matplotlib inline\nx = 1"),
        ("%%time\nx = 1", "# %%time\nx = 1"),
        ("\n%%bash\nrm -rf /\nx = 1", "# \n# %%bash\n# rm -rf /\n# x = 1"),
        ("!ls\nfiles = !ls\nprint?\n?print", "# !ls\n# files = !ls\n# print?\n# ?print"),
        ("def f(:\n    pass\nx = 1", "# def f(:\n#     pass\n# x = 1"),
        ("await f()", "await f()"),
        ("# a\rimport os", "# a\nimport os"),
        ("%x\rimport os", "# %x\nimport os"),
        ("'''\n%not magic\n'''", "'''\n%not magic\n'''"),
        ("a\0b", "# a\0b"),
    ],
)
def test_only_what_is_no_python_becomes_a_comment(cell, wanted):
    assert as_python(cell) == wanted


@pytest.mark.parametrize("cell", ["(" * 100_000, "-" * 100_000 + "1", "x = " + "[" * 90, "'\\z'"])
def test_code_that_is_hard_to_read_does_no_harm(cell):
    text = as_python(cell)
    if "z" not in cell:
        assert text.startswith("# ")
        ast.parse(text)


@pytest.mark.parametrize("sign", [*"=+-@", "＝", " \t=", "\x1b=", "\r\n@"])
def test_a_text_that_a_spreadsheet_would_compute_is_shown(sign):
    assert no_formula(f"{sign}cmd()") == f"'{sign.strip()[-1]}cmd()"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (10, "10"), (0.1 + 0.2, "0.3"), (100 / 9, "11.11111"), (20.0, "20")],
)
def test_points_are_written_without_what_nobody_needs(value, text):
    assert number(value) == text


def test_a_table_is_utf_8_whatever_a_folder_is_called():
    student = Student("\udcff", "Zoë\x1b[2J", 'O"Neil, a\nb', "", "", "")
    table = grades_table([("00-start", Standing(student, State.MISSING, "nothing", 10))])
    assert table.decode("utf-8").splitlines()[1] == (
        ',"O""Neil, a b",Zoë[2J,,,00-start,missing,,,,10,,,nothing'
    )


def test_gradescope_is_told_that_messages_are_text():
    message = "\x1b[31mred <script>alert(1)</script>\nsecond line"
    answers = (
        Answer("all_of_it", Outcome.SCORE, 0.5, 6, message),
        Answer("it_hung", Outcome.STUDENT_FAULT, 0.0, 4, "it hung"),
    )
    result = Result(
        "start", Outcome.SCORE, "", "5a", answers, seconds={"cells": 1.5, "names": 0.25}
    )
    standing = Standing(
        Student("ada"), State.GRADED, "", 10, result, points=3, penalty=1, seconds_late=60
    )
    said = results(standing, VISIBILITIES[0])
    assert said["score"] == 2
    assert said["execution_time"] == 1.75
    assert said["output"] == "2 of 10 points. 1 points are taken off for being late."
    assert said["visibility"] == "after_published"
    kinds = ("output_format", "test_output_format", "test_name_format")
    assert {said[kind] for kind in kinds} == {"text"}
    first, second = said["tests"]
    assert first == {
        "score": 3.0,
        "max_score": 6,
        "status": "failed",
        "name": "all of it",
        "number": "1",
        "output": "[31mred <script>alert(1)</script>\nsecond line",
    }
    assert (second["score"], second["status"]) == (0.0, "failed")


def write_half(target: Path) -> None:
    with whole_folder(target) as folder:
        (folder / "a").write_text("half")
        raise ZeroDivisionError


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        write_half(target)
    assert list(tmp_path.iterdir()) == []
    target.mkdir()
    with whole_folder(target) as folder:
        (folder / "a").write_text("all")
    assert [path.name for path in target.iterdir()] == ["a"]
    with pytest.raises(CannotStart, match="is there already"), whole_folder(target):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
