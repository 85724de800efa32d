"""Only what decides is run, and where points are lost, everything."""

import ast
import json

import pytest
from submissions import ORDER, short, solved

from autograder.assignment import CodeCell, read_submission
from autograder.authoring.source import POINTS
from autograder.needed_cells import imports_of, may_change, names_of, needed_cells
from autograder.result import Outcome
from autograder.session import Session

LESSON = [
    "import os\nmodel = make()",
    "show(model)",
    "def make():\n    return SIZES",
    "SIZES = [1]",
]


def left(*own: str) -> list[str]:
    """What is run of LESSON, in its order, with these cells of a student behind it."""
    cells = [CodeCell(number, source) for number, source in enumerate([*LESSON, *own], 1)]
    return [cell.source for cell in needed_cells(cells, frozenset(LESSON))][: len(LESSON)]


@pytest.mark.parametrize(
    ("own", "needed"),
    [
        ("x = 1", ["import os", "", "", ""]),
        ("os.getcwd()", ["import os", "", "", ""]),
        ("def f(): return SIZES[0]", ["import os", "", "", LESSON[3]]),
        ("print(model)", [LESSON[0], "", LESSON[2], LESSON[3]]),
        ("def f(model): return model", ["import os", "", "", ""]),
        (
            "class A:\n    def f(self): return lambda: [SIZES for _ in ()]",
            ["import os", "", "", LESSON[3]],
        ),
        ("def f():\n    global model\n    model = 1", ["import os", "", "", ""]),
        ("f'{model}'", [LESSON[0], "", LESSON[2], LESSON[3]]),
    ],
)
def test_a_cell_of_the_lesson_runs_if_a_name_of_it_is_needed(own, needed):
    assert left(own) == needed


@pytest.mark.parametrize(
    "own",
    [
        "exec('model')",
        "globals()['model']",
        "Out[3]",
        "_",
        "_3",
        "from os import *",
        "import __main__",
        "import sys; sys.modules['__main__'].model",
        "f.__globals__",
        "%time model",
        "!ls",
        "this is no Python",
    ],
)
def test_where_names_can_hide_all_cells_run(own):
    assert left(own) == LESSON


def test_a_throwaway_name_hides_nothing():
    assert left("for _ in range(3): pass") == ["import os", "", "", ""]


def test_a_cell_of_the_lesson_with_magics_runs():
    cells = (CodeCell(1, "%matplotlib inline"), CodeCell(2, "x = 1"))
    assert needed_cells(cells, {"%matplotlib inline"}) == cells


def test_a_cell_of_imports_alone_stays_as_it_is():
    """So that nothing is asked again where nothing was left out."""
    source = "import os\n\nfrom sys import (\n    path,\n)"
    cells = (CodeCell(1, source), CodeCell(2, "x = 1"))
    assert needed_cells(cells, {source}) == cells


def test_imports_bind_no_name_that_another_cell_is_needed_for():
    names = names_of("import torch\nx = torch.ones(3)")
    assert (names.needs, names.binds) == ({"torch"}, {"x"})
    assert (
        imports_of("from a import (b,\n c)\nx = 1\nimport d.e as f")
        == "from a import b, c\nimport d.e as f"
    )


NAMES = {"f", "g", "x", "Cache", "mine", "setattr", "Other", "torch"}


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        ("def f(): return g", {"f"}),
        ("import torch\nx = 1", {"x"}),
        ("Cache.append = mine", {"Cache", "mine"}),
        ("setattr(Cache, 'append', mine)", {"setattr", "Cache", "mine"}),
        ("if True:\n    Cache.size = 0", {"Cache"}),
        ("class Other(Cache): pass", {"Other"}),
        ("exec(code)", NAMES),
        ("%reset -f", NAMES),
        ("", set()),
    ],
)
def test_what_stands_in_a_statement_at_the_top_may_change(own, changed):
    assert {name for name in NAMES if may_change([CodeCell(1, own)], {name})} == changed


@pytest.mark.parametrize("folder", ORDER)
def test_of_a_solved_lesson_its_answers_imports_and_set_up_are_left(desks, folder):
    from autograder.lessons import lesson_folders

    desk = desks(lesson_folders()[folder])
    notebook = solved(desk.lesson)
    _, cells = read_submission(desk.write(notebook), desk.assignment)
    kept = needed_cells(cells, desk.assignment.given)
    lesson = [cell for cell in kept if cell.source.strip() in desk.assignment.given]
    own = [
        cell for cell in cells if cell.source and cell.source.strip() not in desk.assignment.given
    ]
    assert set(own) <= set(kept)
    needs = frozenset().union(*(names_of(cell.source).needs for cell in own))
    others = [cell for cell in lesson if not holds_imports_alone(cell.source)]
    assert len([cell for cell in others if not binds_one_of(needs, cell.source)]) == 1, "the set-up"


def binds_one_of(names: frozenset[str], source: str) -> bool:
    try:
        return bool(names_of(source).binds & names)
    except SyntaxError:  # the set-up cell has a magic
        return False


def holds_imports_alone(source: str) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return False
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


# --- through the judge ---------------------------------------------------------------------------

slow = pytest.mark.slow
ENDLESS = "def matmul_flops(m, k, n):\n    while True: pass"


@slow
def test_the_points_are_the_same_and_the_report_counts_what_did_not_run(desks):
    desk = desks("00-start")
    result = desk.judge(solved(desk.lesson))
    assert (result.points, result.outcome) == (POINTS, Outcome.SCORE)
    assert result.skipped >= 5
    assert desk.judge(short(desk.lesson)).points == POINTS


@slow
def test_an_endless_loop_costs_the_points_of_its_function(desks):
    """Cells of the lesson call it, too; they are not waited for before the points are given."""
    desk = desks("00-start")
    result = desk.judge(solved(desk.lesson, matmul_flops=ENDLESS), cell=2, question=2)
    lost = {answer.check for answer in result.answers if answer.score < 1}
    assert lost == {"flops_of_one_dot_product", "flops_of_any_product"}


@slow
def test_a_lost_point_is_asked_again_with_all_cells(desks):
    """The answer needs a name of a cell before it, in a way that nobody can see."""
    desk = desks("00-start")
    hidden = (
        "import sys\n"
        "def matmul_bytes(m, k, n, bytes_per_element=4):\n"
        "    main = getattr(sys, 'mod' + 'ules')['__main__']\n"
        "    seen = 1 if hasattr(main, 'flops_by_adding') else 0\n"
        "    return (m * k + k * n + m * n) * bytes_per_element * seen\n"
    )
    result = desk.judge(solved(desk.lesson, matmul_bytes=hidden))
    assert (result.points, result.skipped) == (POINTS, 0)


@slow
def test_cells_of_the_lesson_behind_the_students_test_are_not_waited_for(desks, monkeypatch):
    """What the answer keeps was there where the student tested; a race of minutes may come after."""
    desk, ran, run = desks("00-start"), [], Session._run
    monkeypatch.setattr(
        Session, "_run", lambda self, *args: ran.append(args[1].source) or run(self, *args)
    )
    keeps = "calls = []\ndef matmul_flops(m, k, n):\n    calls.append(1)\n    return m * k * n"
    result = desk.judge(solved(desk.lesson, matmul_flops=keeps), follow_through=False)
    assert "again, with all cells" in result.seconds
    assert result.points < POINTS
    assert not any("flops_by_adding" in source for source in ran)


@slow
def test_what_passes_without_the_lessons_cells_is_not_lost_by_them(desks):
    """A cell of the lesson calls the answer, which is right for its first calls alone."""
    desk = desks("00-start")
    notebook = json.loads(json.dumps(solved(desk.lesson)))
    assert "matmul_flops(1, 4096, 4096)" in "".join(cell["source"] for cell in notebook["cells"])
    forgetful = (
        "spoilt = []\n"
        "def matmul_flops(m, k, n):\n"
        "    if (m, k, n) == (1, 4096, 4096): spoilt.append(1)\n"
        "    return 2 * m * k * n + len(spoilt)\n"
    )
    wrong_bytes = "def matmul_bytes(m, k, n, bytes_per_element=4):\n    return 0"
    result = desk.judge(solved(desk.lesson, matmul_flops=forgetful, matmul_bytes=wrong_bytes))
    lost = {answer.check for answer in result.answers if answer.score < 1}
    assert lost == {"bytes_of_three_matrices", "bytes_follow_the_element_size"}
