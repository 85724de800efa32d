"""A notebook is read as what it is: this lesson's, whatever else is in it, or another lesson's."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from submissions import answers, short

from autograder.assignment import BadSubmission, read_assignment, read_submission
from lessons import COURSE, FOLDERS

HERE, OTHER = COURSE.read("03-kv-cache"), COURSE.read("02-naive-decode")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_other_lesson_s_notebook_is_refused_by_name(folder, tmp_path):
    assignment, path = read_assignment(COURSE.read(folder).student), tmp_path / "handed_in.ipynb"
    for lesson in (COURSE.read(other) for other in FOLDERS if other != folder):
        path.write_bytes(lesson.student.read_bytes())
        with pytest.raises(BadSubmission) as refused:
            read_submission(path, assignment)
        assert f"notebook of lesson {lesson.number}, {lesson.title};" in str(refused.value)
        assert str(refused.value).endswith(f"that of this lesson is {assignment.module}.ipynb")


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
        pytest.param(
            [cell for cell in short(HERE).cells if cell.id not in answers(HERE)], id="tests alone"
        ),
    ],
)
def test_what_may_be_this_lesson_s_is_read(cells, tmp_path):
    path = tmp_path / "kv_cache.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    _, found = read_submission(path, read_assignment(HERE.student))
    assert len(found) == len([cell for cell in cells if cell.cell_type == "code"])
