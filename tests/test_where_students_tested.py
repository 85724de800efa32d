"""A notebook that passes its tests gets its points, wherever it goes on to afterwards."""

import pytest
from nbformat.v4 import new_code_cell
from patience import PATIENCE
from submissions import Desk, answers, opening, short, solved

from autograder.authoring.source import POINTS
from autograder.challenges import Challenges
from autograder.examiner import MAX_TEST_CELLS, Examiner
from autograder.result import Outcome

AFTERWARDS = {
    "a name used again": "matmul_flops = matmul_flops(2, 3, 4)",
    "another try": "def matmul_flops(m, k, n):\n    return m * k * n",
    "everything forgotten": "%reset -f",
    "deleted": "del matmul_flops, matmul_bytes",
    "the process ended": "import os; os._exit(1)",
    "an endless experiment": "while True: pass",
    "torch taken away": "import torch; torch.tensor = torch.from_numpy = None",
}


@pytest.fixture
def desk(desks) -> Desk:
    return desks("00-start")


@pytest.mark.slow
@pytest.mark.parametrize("name", AFTERWARDS)
def test_what_comes_after_the_tests_takes_no_points(desk, name):
    result = desk.judge(short(desk.lesson, AFTERWARDS[name]))
    assert (result.outcome, result.points, result.cells) == (Outcome.SCORE, POINTS, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", AFTERWARDS)
def test_what_comes_between_two_tests_takes_no_points_of_the_first(desk, name):
    more = answers(desk.lesson)["matmul_bytes"] + "\n\n" + AFTERWARDS[name]
    result = desk.judge(short(desk.lesson, matmul_bytes=more), cell=4)
    flops = [answer.score for answer in result.answers if answer.check.startswith("flops")]
    assert set(flops) == {1}


def test_what_is_put_right_after_its_test_counts_at_the_end(desk):
    right = answers(desk.lesson)["matmul_flops"]
    wrong = "def matmul_flops(m, k, n):\n    return m * k * n"
    result = desk.judge(short(desk.lesson, right, matmul_flops=wrong))
    assert result.points == POINTS


def test_tests_that_stand_before_their_functions_are_asked_at_the_end(desk):
    notebook = short(desk.lesson)
    tests = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    notebook.cells = [*tests, *(cell for cell in notebook.cells if cell not in tests)]
    assert desk.judge(notebook).points == POINTS


def test_an_edited_test_cell_still_says_where_the_student_tested(desk):
    notebook = short(desk.lesson, "del matmul_flops")
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = f"print('my own test')\n{cell.source}"
    assert desk.judge(notebook).points == POINTS


def test_a_question_is_asked_a_few_times_at_most(desk, monkeypatch):
    """However often its test cell was copied, and then at the end; each time with other challenges."""
    wrong = "def matmul_flops(m, k, n):\n    return m * k * n"
    notebook = short(desk.lesson, matmul_flops=wrong)
    test = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade"))
    for _ in range(9):
        notebook.cells += [new_code_cell(test.source), new_code_cell(wrong)]
    name = f"start.{test.metadata.nbgrader.grade_id}"
    asked = numbers_asked(desk, notebook, name, monkeypatch)
    assert len(asked) == len(set(asked)) == MAX_TEST_CELLS + 1


def test_behind_cells_that_change_nothing_about_it_a_question_is_not_asked_again(desk, monkeypatch):
    wrong = "def matmul_flops(m, k, n):\n    return m * k * n"
    notebook = short(desk.lesson, matmul_flops=wrong)
    test = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade"))
    for _ in range(9):
        notebook.cells += [new_code_cell(test.source), new_code_cell("another = 1")]
    name = f"start.{test.metadata.nbgrader.grade_id}"
    assert len(numbers_asked(desk, notebook, name, monkeypatch)) == 1


def test_behind_a_patch_of_the_answer_a_question_is_asked_again(desk, monkeypatch):
    """A statement that binds no name may still change what is asked about."""
    wrong = (
        "class Counter:\n    pass\n\ndef matmul_flops(m, k, n):\n    return Counter.flops(m, k, n)"
    )
    patch = "Counter.flops = staticmethod(lambda m, k, n: 2 * m * k * n)"
    notebook = short(desk.lesson, matmul_flops=wrong)
    notebook.cells += [new_code_cell(patch)]
    monkeypatch.setattr(Examiner, "may_gain_from_all_cells", lambda *_: False)
    assert desk.judge(notebook, follow_through=False).points == POINTS


def numbers_asked(desk, notebook, name: str, monkeypatch) -> list[int]:
    """The numbers of the first challenges of each time that one question was asked."""
    asked, numbers = [], Challenges.numbers

    def noted(self, check: str) -> range:
        found = numbers(self, check)
        asked.append((check, found.start))
        return found

    monkeypatch.setattr(Challenges, "numbers", noted)
    desk.judge(notebook, follow_through=False)
    return [number for check, number in asked if check == name]


def test_cells_after_the_last_lost_point_are_not_run(desk):
    """A long experiment at the end costs no time once everything is right."""
    result = desk.judge(solved(desk.lesson, "import time; time.sleep(3600)"), submission=PATIENCE)
    assert result.points == POINTS
    result = desk.judge(opening(desk.lesson, "print('run')"))
    assert "run" in result.output
