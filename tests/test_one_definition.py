"""All questions about a function are decided by the same definition of it."""

import pytest
from nbformat.v4 import new_code_cell
from submissions import Desk, answers, between_tests, short

from autograder.authoring.source import POINTS

ONE_DOT = "def matmul_flops(m, k, n):\n    return 2 * k if m == n == 1 else 3 * m * k * n"
LARGER = "def matmul_flops(m, k, n):\n    return 2 * m * k * n if m * n > 1 else 0"
BY_A_NAME = "def matmul_flops(m, k, n):\n    return formula(m, k, n)"


@pytest.fixture
def desk(desks) -> Desk:
    return desks("00-start")


def before_tests(desk: Desk, cells: dict[str, str], **instead: str):
    """The solved notebook with these cells, each before the test cell of that name."""
    notebook = short(desk.lesson, **instead)
    for name, source in cells.items():
        (place,) = (n for n, cell in enumerate(notebook.cells) if cell.id == name)
        notebook.cells.insert(place, new_code_cell(source))
    return notebook


def flops(result) -> list[float]:
    return [answer.score for answer in result.answers if answer.check.startswith("flops")]


@pytest.mark.parametrize(
    ("one_dot", "larger"),
    [
        (ONE_DOT, LARGER),
        (
            f"formula = lambda m, k, n: (3 - (m == n == 1)) * m * k * n\n{BY_A_NAME}",
            "formula = lambda m, k, n: 2 * m * k * n * (m * n > 1)",
        ),
        (
            f"table = {{False}}\n"
            f"{LARGER.replace('m * n > 1 else 0', '(m * n > 1) in table else 3 * m * k * n')}",
            "table.clear()\ntable.add(True)",
        ),
    ],
    ids=["two definitions", "two helpers", "a table that is filled"],
)
def test_another_variant_before_each_test_gets_the_points_of_one(desk, one_dot, larger):
    result = desk.judge(
        before_tests(
            desk,
            {"flops_of_one_dot_product": one_dot, "flops_of_any_product": larger},
            matmul_flops="def matmul_flops(m, k, n):\n    return 0",
        )
    )
    assert sorted(flops(result)) == [0, 1]
    (lost,) = (answer for answer in result.answers if not answer.score)
    assert lost.message.startswith("There are several definitions of matmul_flops.")
    assert result.points < POINTS


@pytest.mark.parametrize(
    "between",
    [
        "print(matmul_flops(2, 3, 4))",
        "def matmul_flops(m, k, n):\n    return 2 * k * n * m",
        "m, k, n = 5, 6, 7\nassert matmul_flops(m, k, n) == 2 * m * k * n",
        "import functools\nmatmul_flops = functools.cache(matmul_flops)",
        answers,
    ],
    ids=["an experiment", "a better one", "an assertion", "a decorated one", "the same again"],
)
def test_who_works_on_between_two_tests_keeps_all_points(desk, between):
    source = between if isinstance(between, str) else between(desk.lesson)["matmul_flops"]
    result = desk.judge(before_tests(desk, {"flops_of_any_product": source}))
    assert (result.points, result.cells) == (POINTS, ())
    assert not any("definitions" in answer.message for answer in result.answers)


def test_a_first_try_that_passes_one_test_takes_nothing_from_the_better_one(desk):
    right = answers(desk.lesson)["matmul_flops"]
    result = desk.judge(before_tests(desk, {"flops_of_any_product": right}, matmul_flops=ONE_DOT))
    assert result.points == POINTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", ["", "def kv_cache_bytes(config, n_tokens, *more):\n    return 1"]
)
def test_cells_that_may_change_a_class_between_all_tests_cost_nothing(desks, wrong):
    desk = desks("03-kv-cache")
    notebook = short(desk.lesson, **({"kv_cache_bytes": wrong} if wrong else {}))
    result = desk.judge(between_tests(notebook, "same = KVCache, forward_cached"))
    lost = [answer.check for answer in result.answers if answer.score < 1]
    assert lost == ["bytes_match_the_storage"] * bool(wrong)
