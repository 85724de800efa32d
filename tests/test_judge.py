"""One submission in, one result out: the right points, the right blame, whatever is handed in."""

import json
import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from submissions import ORDER, Desk, answers, opening, short, solved, submission

from autograder import challenges, session
from autograder.assignment import read_assignment
from autograder.authoring.source import POINTS
from autograder.challenges import draw_seed
from autograder.result import Outcome
from autograder.sandbox.child import InfraError
from lessons import FOLDERS

KINDS = (Outcome.SCORE, Outcome.STUDENT_FAULT, Outcome.INFRA_ERROR)


@pytest.fixture
def start(desks) -> Desk:
    """Lesson 00: two functions, four questions."""
    return desks("00-start")


def scores(result) -> dict[str, float]:
    return {answer.check: answer.score for answer in result.answers}


def of_flops_and_bytes(result) -> list[tuple[Outcome, float]]:
    """Outcome and points of what rests on `matmul_flops`, and of what rests on `matmul_bytes`."""
    parts = []
    for prefix in ("flops", "bytes"):
        own = [answer for answer in result.answers if answer.check.startswith(prefix)]
        assert len({answer.outcome for answer in own}) == 1
        parts.append((own[0].outcome, sum(answer.points for answer in own)))
    return parts


# --- right and untouched -------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_solved_notebook_gets_every_point(desks, folder):
    desk = desks(folder)
    result = desk.judge(solved(desk.lesson))
    assert [a.message for a in result.answers if a.score < 1] == []
    assert (result.outcome, result.points, result.cells) == (Outcome.SCORE, POINTS, ())
    assert [a.check for a in result.answers] == [q.check for q in desk.assignment.questions]


@pytest.mark.sampled
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_untouched_notebook_gets_none(desks, folder):
    desk = desks(folder)
    result = desk.judge(submission(desk.lesson, {}))
    assert (result.outcome, result.points) == (Outcome.SCORE, 0)
    assert {a.outcome for a in result.answers} == {Outcome.SCORE}
    assert all("Not written yet" in a.message for a in result.answers)


def test_the_assignment_is_what_the_lesson_says(desks):
    for folder in FOLDERS:
        desk = desks(folder)
        graded = [cell for cell in desk.lesson.cells if cell.points]
        asked = [(question.check, question.points) for question in desk.assignment.questions]
        assert asked == [(cell.grade_id, cell.points) for cell in graded]
        assert len(desk.assignment.tests) == len(graded)


# --- trouble costs the question that it happened in ----------------------------------------------

TROUBLE = {
    "exit": ("import os; os._exit(0)", "status 0"),
    "kill": ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "crash": ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "hang": ("while True: pass", "the time limit of"),
    "close": ("import os; os.closerange(3, 99)", "closed its pipes|status"),
}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_function_that_ends_or_hangs_the_process_costs_its_own_questions(start, trouble):
    source, words = TROUBLE[trouble]
    body = f"def matmul_flops(m, k, n):\n    {source}"
    result = start.judge(short(start.lesson, matmul_flops=body), question=2)
    fault, full = of_flops_and_bytes(result)
    whole = sum(q.points for q in start.assignment.questions if q.check.startswith("bytes"))
    assert (fault, full) == ((Outcome.STUDENT_FAULT, 0), (Outcome.SCORE, whole))
    assert any(part in result.answers[0].message for part in words.split("|"))
    assert result.outcome == Outcome.SCORE


def test_an_error_costs_its_own_questions_and_says_where_it_came_up(start):
    wrong = "def matmul_flops(m, k, n):\n    return m * none"
    result = start.judge(short(start.lesson, matmul_flops=wrong))
    (outcome, points), (_, rest) = of_flops_and_bytes(result)
    assert (outcome, points) == (Outcome.SCORE, 0)
    assert rest > 0
    message = result.answers[0].message
    assert message.startswith(
        "Your code stopped in matmul_flops, at `return m * none`, where m = 1, k = "
    )
    assert message.endswith(", n = 1, with NameError: name 'none' is not defined")


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", ["import os; os._exit(1)", "while True: pass", "import os\nos.kill(os.getpid(), 9)"]
)
def test_a_cell_that_ends_or_hangs_the_process_is_left_out(start, cell):
    notebook = short(start.lesson)
    notebook.cells.insert(0, new_code_cell(cell))
    result = start.judge(notebook, cell=4)
    assert (result.outcome, result.points) == (Outcome.SCORE, POINTS)
    (report,) = result.cells
    assert report.startswith("Cell 1: ")
    assert report.endswith("It is left out.")


@pytest.mark.slow
def test_a_notebook_that_cannot_be_run_at_all_is_the_students_fault(start):
    result = start.judge(opening(start.lesson, *["import os; os._exit(1)"] * 5))
    assert (result.outcome, result.points) == (Outcome.STUDENT_FAULT, 0)
    assert result.reason.count("left out") == session.DEAD_CELLS + 1
    assert {a.outcome for a in result.answers} == {Outcome.STUDENT_FAULT}


def test_the_whole_submission_has_a_deadline(start):
    slow = "import time; time.sleep(3600)"
    result = start.judge(opening(start.lesson, slow), submission=4)
    assert (result.outcome, result.points) == (Outcome.STUDENT_FAULT, 0)
    assert "4 seconds" in result.reason


@pytest.mark.slow
def test_what_was_asked_before_time_ran_out_counts(start):
    slow = "import time; time.sleep(3600)"
    wrong = f"{slow}\ndef matmul_bytes(*sizes): return 0"
    result = start.judge(short(start.lesson, matmul_bytes=wrong), submission=30)
    (_, first), (fault, rest) = of_flops_and_bytes(result)
    assert (result.outcome, fault, rest) == (Outcome.SCORE, Outcome.STUDENT_FAULT, 0)
    assert first > 0
    assert "30 seconds" in result.answers[-1].message


def test_a_missing_function_is_told_with_the_reason(start):
    broken = "def matmul_flops(m, k, n)\n    return 2 * m * k * n"
    result = start.judge(short(start.lesson, matmul_flops=broken))
    (_, points), (_, rest) = of_flops_and_bytes(result)
    assert (points, rest > 0) == (0, True)
    message = result.answers[0].message
    assert message.startswith("There is no matmul_flops in this notebook. Cell ")
    assert "SyntaxError: expected ':'" in message


@pytest.mark.slow
def test_honest_noise_costs_nothing(start):
    noise = (
        "%matplotlib inline\nimport sys, warnings\nfrom tqdm.auto import tqdm\nwarnings.warn('careful')\n"
        "for _ in tqdm(range(3)): print('x' * 2**20, file=sys.stderr)\n%time 1\nexit\n"
    )
    loud = answers(start.lesson)["matmul_flops"].replace(
        "    return", "    print('hm'); import warnings; warnings.warn('x')\n    return"
    )
    result = start.judge(opening(start.lesson, noise, matmul_flops=loud))
    assert (result.points, result.cells) == (POINTS, ())
    assert "hm" in start.judge(opening(start.lesson, "print('hm')")).output
    assert len(result.output) < session.OUTPUT + 100


@pytest.mark.slow
def test_what_a_function_gives_may_be_anything(start):
    for value in ("None", "float('nan')", "10 ** 5000", "object()"):
        wrong = f"def matmul_flops(m, k, n): return {value}"
        result = start.judge(short(start.lesson, matmul_flops=wrong))
        (outcome, points), (_, rest) = of_flops_and_bytes(result)
        assert (outcome, points, rest > 0) == (Outcome.SCORE, 0, True), value
        assert all(answer.message for answer in result.answers)


# --- blame ---------------------------------------------------------------------------------------


class Flaky:
    """Starts a process after so many failures of the machine."""

    def __init__(self, desk: Desk, failures: int) -> None:
        self.desk, self.failures = desk, failures

    def __call__(self):
        self.failures -= 1
        if self.failures >= 0:
            raise InfraError("no sandbox today")
        return self.desk.start()


def test_a_machine_that_fails_twice_is_tried_again(start, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0, 0.1))
    result = start.judge(short(start.lesson), start=Flaky(start, 2))
    assert (result.outcome, result.points) == (Outcome.SCORE, POINTS)


def test_a_machine_that_keeps_failing_gives_no_grade(start, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0, 0.1))
    result = start.judge(short(start.lesson), start=Flaky(start, 3))
    assert result.outcome == Outcome.INFRA_ERROR
    assert {a.outcome for a in result.answers} == {Outcome.INFRA_ERROR}
    assert "no sandbox today" in result.reason


def test_a_mistake_of_the_judge_is_no_zero(start, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("in the judge")

    monkeypatch.setattr(challenges, "draw_seed", fail)
    result = start.judge(short(start.lesson))
    assert result.outcome == Outcome.INFRA_ERROR
    assert "in the judge" in result.reason


# --- the same grade for the same work ------------------------------------------------------------


@pytest.mark.slow
def test_the_same_file_gets_the_same_result_again(desks):
    desk = desks("03-kv-cache")
    wrong = answers(desk.lesson)["forward_cached"].replace("past + T", "past + T + 1")
    wrong = wrong.replace("arange(past,", "arange(past + 1,")  # positions that start at 1
    file = desk.write(short(desk.lesson, forward_cached=wrong))
    first, second = desk.judge(file), desk.judge(file)
    assert first.answers == second.answers
    assert 0 < first.points <= POINTS


def test_seeds_depend_on_everything_and_fit_every_generator():
    seeds = [
        draw_seed(secret, digest, check, number)
        for secret in (b"a", b"b")
        for digest in ("c", "d")
        for check in ("e", "f")
        for number in range(3)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert seeds[0] == draw_seed(b"a", "c", "e", 0)


# --- what was handed in --------------------------------------------------------------------------


def text(notebook: nbformat.NotebookNode) -> bytes:
    return nbformat.writes(notebook).encode()


def old_format(notebook: nbformat.NotebookNode) -> bytes:
    """The same in nbformat 3."""
    cells = [
        {"cell_type": "code", "language": "python", "outputs": [], "input": cell.source}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}).encode()


def without_ids(notebook: nbformat.NotebookNode) -> bytes:
    plain = json.loads(text(notebook))
    for cell in plain["cells"]:
        del cell["id"]
    return json.dumps({**plain, "nbformat_minor": 2}).encode()


def edited(notebook: nbformat.NotebookNode) -> bytes:
    """Metadata is the student's to change: tags, points, ids, flags, kernel."""
    for cell in notebook.cells:
        cell.metadata = {"tags": ["skip-execution", "raises-exception"]}
        cell.metadata["nbgrader"] = {"grade": True, "points": 1000, "grade_id": "all_the_same"}
    notebook.metadata = {"kernelspec": {"name": "bash", "language": "bash"}}
    return text(notebook)


def without_tests(notebook: nbformat.NotebookNode) -> bytes:
    notebook.cells = [c for c in notebook.cells if not c.metadata.get("nbgrader", {}).get("grade")]
    return text(notebook)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda n: b"\xef\xbb\xbf" + text(n), id="with a BOM"),
        old_format,
        without_ids,
        edited,
        without_tests,
    ],
)
def test_honest_work_in_another_form_gets_every_point(start, form):
    result = start.judge(form(short(start.lesson)))
    assert (result.outcome, result.points) == (Outcome.SCORE, POINTS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a notebook"),
        (b"{", "not a notebook"),
        (b"[" * 200_000, "not a notebook"),
        (b"[]", "no list of cells"),
        (b'{"cells": {}}', "no list of cells"),
        (b'{"worksheets": [1]}', "no list of cells"),
        ("{}".encode("utf-16"), "not UTF-8"),
    ],
)
def test_what_is_no_notebook_is_the_students_fault(start, content, words):
    result = start.judge(content)
    assert (result.outcome, result.points) == (Outcome.STUDENT_FAULT, 0)
    assert words in result.reason


def test_a_link_a_pipe_a_folder_and_nothing_are_no_notebook(start):
    file = start.write(short(start.lesson))
    link, pipe, nothing = (file.with_name(name) for name in ("link", "pipe", "nothing"))
    link.symlink_to(file)
    os.mkfifo(pipe)
    for path in (link, pipe, nothing, file.parent):
        result = start.judge(path)
        assert (result.outcome, result.points) == (Outcome.STUDENT_FAULT, 0)
        assert path.name in result.reason


@pytest.mark.parametrize(
    "cells", [[], [None, 1, "x", []], [{"cell_type": "code", "source": {"a": 1}}], [{}] * 3]
)
def test_odd_cells_are_passed_over(start, cells):
    result = start.judge(json.dumps({"cells": cells}).encode())
    assert (result.outcome, result.points) == (Outcome.SCORE, 0)
    assert all("There is no " in answer.message for answer in result.answers)


def test_test_cells_are_not_run(start):
    """They hold nothing of the student's, and print PASS where they ran."""
    assert "PASS" not in start.judge(short(start.lesson)).output


def test_a_file_beside_the_notebook_is_not_torch(start):
    file = start.write(opening(start.lesson, "import helper; assert helper.x == 1"))
    for name in ("torch", "numpy", "course", "json", "judge", "IPython"):
        (file.parent / f"{name}.py").write_text("raise SystemExit('not this one')")
    (file.parent / "helper.py").write_text("x = 1")
    result = start.judge(file)
    assert (result.points, result.cells) == (POINTS, ())


# --- what the student's process can see ----------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_view_holds_no_verdict_no_oracle_and_no_answer_of_this_lesson(desks, folder):
    desk = desks(folder)
    there = sorted(
        path.relative_to(desk.view).as_posix() for path in (desk.view / "judge").rglob("*.py")
    )
    module = desk.lesson.module
    assert there == [
        "judge/__init__.py",
        "judge/probes.py",
        "judge/student.py",
        "judge/wire.py",
    ]
    exported = {path.stem for path in (desk.view / "course" / "minigpt").glob("*.py")}
    assert exported == {"__init__", *ORDER[: ORDER.index(module)]}
    assert not (desk.view / "autograder").exists()


@pytest.mark.slow
def test_an_answer_cannot_be_imported(desks):
    desk = desks("03-kv-cache")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [new_code_cell("from course.minigpt.kv_cache import *")]
    result = desk.judge(notebook)
    assert result.points == 0
    assert "No module named 'course.minigpt.kv_cache'" in result.cells[0]


def test_the_released_notebook_says_which_lesson_it_is(desks):
    desk = desks("00-start")
    again = read_assignment(desk.place / "start.ipynb")
    assert again == desk.assignment
    assert again.module == "start"
