"""The frame for checks of plain functions tells every way in which a result can be wrong."""

import numpy as np
import pytest
import torch

from course.checks.calls import call, check_calls

TRUTH = {
    "double": lambda x: 2 * x,
    "halves": lambda n: [n // 2, n - n // 2],
    "name": lambda n: "even" if n % 2 == 0 else "odd",
}
RIGHT = {
    "double": lambda x: 2 * x,
    "halves": lambda n: (n // 2, n - n // 2),
    "name": lambda n: "odd" if n % 2 else "even",
}


def draw(rng):
    yield call("double", np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    yield call("double", np.ones((1, 3), np.float32), dtype="bfloat16")
    yield call("halves", 7)
    yield call("name", 4)
    yield call("name", "four", refuses="TypeError", question="What is a text?")


@check_calls(
    "double",
    "halves",
    "name",
    draw=draw,
    praise="All right.",
    shape_question="Which axis?",
    truth=lambda function, *arguments: TRUTH[function](*arguments),
    tolerance=1e-3,
)
def results_are_right(case, result, expected, place):
    return f"is wrong at {place}: {np.array(result, object)[place]}.", (
        (case["function"] != "double", "Which number?"),
        (True, "Which place?"),
    )


def judged(**wrong):
    """The message for right functions with these in their place."""
    return results_are_right.judge({**RIGHT, **wrong}, seed=0).message


def test_right_results_pass():
    assert results_are_right.judge(RIGHT, seed=0).score == 1
    assert judged(double=lambda x: 2 * x + 5e-4 * x.abs()) == "All right."


@pytest.mark.parametrize(
    ("function", "wrong", "message"),
    [
        ("double", lambda x: None, "gave nothing (None); expected is a tensor."),
        ("double", lambda x: x.tolist(), "expected is a tensor."),
        ("double", lambda x: (2 * x).float(), "gave float32; expected is bfloat16."),
        ("double", lambda x: 2 * x[0], "gave shape (2,); expected is (2, 2). Which axis?"),
        ("double", lambda x: x + 2, "is wrong at (0, 0): 3.0. Which place?"),
        ("double", lambda x: 2 * x * torch.tensor(float("nan")), "Which place?"),
        ("halves", lambda n: n / 2, "gave 3.5; expected are 2 values."),
        ("halves", lambda n: [n // 2] * 2, "is wrong at (1,): 3. Which number?"),
        ("name", lambda n: "odd", 'is wrong at (): "odd". Which number?'),
        ("name", lambda n: "even", "name(four) returned; expected is TypeError. What is a text?"),
    ],
)
def test_what_is_wrong_is_told(function, wrong, message):
    assert message in judged(**{function: wrong})


def test_an_argument_that_is_changed_breaks_a_house_rule():
    assert "double changed what it was given" in judged(double=lambda x: x.mul_(2).clone())
