"""No function of the course answers what a lesson asks: importing one earns no point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from submissions import ORDER

from autograder.sandbox.library_view import lay_out
from lessons import ROOT

PLANTED = """
from functools import partial
from course.checks.calls import check_calls

def closed():
    answer = lambda m, k, n: 2 * m * k * n
    def question(*sizes):
        return str(answer(*sizes))
    return question

@check_calls("function", draw=None, praise="", truth=lambda m, k, n: 2.0 * m * k * n)
def in_a_check(case, result, expected, place):
    return "", ()

in_a_closure = closed()
in_a_table = {"key": [lambda m, k, n: n * m * (k + k)]}
in_a_partial = partial(lambda two, m, k, n: two * m * k * n, 2)
"""


def earned_in(views: Path) -> dict[str, list]:
    """What functions of each of these library views earned, see borrowed.py."""
    process = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "borrowed.py"), str(views)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        cwd=views,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ORDER)
def test_no_function_of_its_library_view_passes_a_hidden_check(lesson, tmp_path):
    lay_out(tmp_path / lesson, lesson, ORDER)
    assert earned_in(tmp_path)[lesson] == []


@pytest.mark.slow
def test_a_function_that_answers_is_found_wherever_it_is(tmp_path):
    view = lay_out(tmp_path / "start", "start", ORDER)
    (view / "course" / "planted.py").write_text(PLANTED, encoding="utf-8")
    found = earned_in(tmp_path)["start"]
    checks = ("flops_of_one_dot_product", "flops_of_any_product")
    places = ("in_a_check.truth", "in_a_closure.answer", "in_a_table.key.0", "in_a_partial")
    assert sorted(found) == sorted(
        ["matmul_flops", f"course.planted.{place}", check] for place in places for check in checks
    )
