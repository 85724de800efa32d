"""The progress page: which visible checks passed when, and what is next."""

import pytest
from student_folder import course_command, kernel, lay_out

import course
from course.files.progress_notes import read_passed, remember_pass
from course.files.progress_page import read_progress, what_is_next, write_progress
from course.files.released import find_lesson
from course.plots.progress import draw_progress

LESSONS = [find_lesson("00"), find_lesson("01")]
PASSED = {"start": {"flops_of_one_dot_product": "2026-11-23T05:00:00+00:00"}}
CHECK = """
from course.checks import start as checks
checks.flops_of_one_dot_product(lambda m, k, n: 2 * m * k * n)
"""


def test_what_passed_and_what_is_next_is_written_a_line_a_lesson():
    text = write_progress(LESSONS, PASSED).splitlines()
    assert text[0].startswith("00 Start here")
    assert "#......      1 of 7, last on 23 November at 05:00" in text[0]
    assert text[-1] == "Next: flops_of_any_product, in lesson 00-start."


def test_when_all_passed_it_says_so():
    every = {
        one.module: {cell.name: "2026-11-23T05:00:00+00:00" for cell in one.graded}
        for one in LESSONS
    }
    assert what_is_next(LESSONS, every) == "Every check has passed."


def test_the_picture_has_a_box_a_check_words_and_days():
    picture = draw_progress(LESSONS, PASSED, "Next: this.")
    (axes,) = picture.figure.axes
    assert len(axes.patches) == sum(len(one.graded) for one in LESSONS)
    assert [text.get_text() for text in axes.texts] == ["23 Nov"]
    assert "00: 1 of 7" in picture.alt
    assert "Next: this." in picture.caption


@pytest.mark.parametrize(
    "notes", ["", "{", "[]", '{"start": 3}', '{"start": {"a": 3, "b": "soon"}}', "\0"]
)
def test_broken_notes_are_no_progress(tmp_path, notes):
    path = tmp_path / ".second-token" / "progress.json"
    path.parent.mkdir()
    path.write_text(notes)
    assert sum(map(len, read_passed(path).values())) == 0
    assert "0 of 7" in write_progress(*read_progress(tmp_path))


def test_outside_a_student_s_kernel_nothing_is_noted(tmp_path, monkeypatch):
    notebook = lay_out(tmp_path, "00-start")
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    remember_pass("flops_of_one_dot_product")
    assert not (tmp_path / ".second-token").exists()


@pytest.mark.slow
def test_a_pass_in_a_notebook_is_noted_once_and_shown(tmp_path):
    notebook = lay_out(tmp_path, "00-start")
    notes = tmp_path / ".second-token" / "progress.json"
    with kernel(cwd=notebook.parent) as run:
        assert "PASS" in run(CHECK)
        assert not notes.exists(), "no student has it open"
    with kernel(notebook) as run:
        assert "PASS" in run(CHECK)
        first = notes.read_text()
        run(CHECK)
        assert notes.read_text() == first
        assert "image/png" in run("%matplotlib inline\nimport course\ncourse.progress()")
    assert list(read_passed(notes)["start"]) == ["flops_of_one_dot_product"]
    assert "1 of 7" in course_command("progress", cwd=tmp_path).stdout


def test_the_page_is_printed_outside_a_notebook(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    course.progress()
    assert "Next: flops_of_one_dot_product, in lesson 00-start." in capsys.readouterr().out
