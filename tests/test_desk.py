"""Points belong to the very file that ran, whatever is handed in meanwhile."""

import json
import logging
from contextlib import closing

import pytest
from confined import needs_bubblewrap
from submissions import released, solved

from autograder.authoring.source import POINTS
from autograder.desk import REPLACED, Desk
from autograder.nbgrader_steps import Settings
from autograder.result import Outcome
from lessons import COURSE

pytestmark = needs_bubblewrap
LESSON = COURSE.read("00-start")


@pytest.fixture(
    params=[
        pytest.param(False, id="once"),
        pytest.param(True, id="again", marks=pytest.mark.slow),
    ]
)
def desk(request, tmp_path):
    notebook = tmp_path / LESSON.student.name
    notebook.write_text(released(LESSON), encoding="utf-8")
    log = logging.getLogger(__name__)
    grading = tmp_path / "grading"
    grading.mkdir()
    with closing(Desk(notebook, grading, Settings().plain(), request.param, log)) as desk:
        yield desk


@pytest.fixture
def handed_in(tmp_path):
    folder = tmp_path / "ada"
    folder.mkdir()
    path = folder / LESSON.student.name
    path.write_text(json.dumps(solved(LESSON)), encoding="utf-8")
    return path


def replacing(desk, texts):
    """Let the desk's next runs each end with another file in the place of the one that ran."""
    run, left = desk._run, list(texts)

    def run_then_replace(launcher, notebook):
        result = run(launcher, notebook)
        if left:
            notebook.write_text(left.pop(0), encoding="utf-8")
        return result

    desk._run = run_then_replace


def test_the_points_are_those_of_the_file_that_lies_there(desk, handed_in):
    replacing(desk, [released(LESSON)])
    assert desk.judge(handed_in).result.points == 0
    assert desk.kept(handed_in).result.points == 0
    handed_in.write_text(json.dumps(solved(LESSON)), encoding="utf-8")
    assert desk.judge(handed_in).result.points == POINTS


def test_what_is_replaced_again_and_again_gets_no_points_yet(desk, handed_in):
    replacing(desk, [json.dumps(solved(LESSON, f"number = {n}")) for n in range(REPLACED)])
    result = desk.judge(handed_in).result
    assert result.outcome == Outcome.INFRA_ERROR
    assert "kept being handed in" in result.reason
    assert desk.kept(handed_in) is None
