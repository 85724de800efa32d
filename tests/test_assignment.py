"""A notebook is read as what it is: this lesson's, whatever else is in it, or another lesson's."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from submissions import short

from autograder.assignment import BadSubmission, read_assignment, read_submission
from lessons import COURSE, FOLDERS

HERE, OTHER = COURSE.read("03-kv-cache"), COURSE.read("02-naive-decode")


@pytest.fixture(scope="module")
def assignment():
    return read_assignment(HERE.student)


def read(notebook: nbformat.NotebookNode, place, assignment):
    path = place / "kv_cache.ipynb"
    nbformat.write(notebook, path)
    return read_submission(path, assignment)


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != HERE.folder])
def test_every_other_lesson_s_notebook_is_refused_by_name(folder, assignment, tmp_path):
    lesson = COURSE.read(folder)
    with pytest.raises(BadSubmission) as refused:
        read(nbformat.read(lesson.student, as_version=4), tmp_path, assignment)
    assert f"notebook of lesson {lesson.number}, {lesson.title}:" in str(refused.value)
    assert str(refused.value).endswith("hand in that of this lesson, kv_cache.ipynb")


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([], id="nothing"),
        pytest.param([new_code_cell("x = 1")], id="nothing of any lesson"),
        pytest.param(
            [new_code_cell("def causal_mask(n_new, n_visible): ...")], id="an answer alone"
        ),
        pytest.param(
            [*short(OTHER).cells, new_code_cell("class KVCache: ...")],
            id="an answer among another's cells",
        ),
        pytest.param([*short(OTHER).cells, *short(HERE).cells], id="two lessons in one"),
    ],
)
def test_what_may_be_this_lesson_s_is_read(cells, assignment, tmp_path):
    _, found = read(new_notebook(cells=cells), tmp_path, assignment)
    assert len(found) == len([cell for cell in cells if cell.cell_type == "code"])
