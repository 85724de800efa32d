"""The benchmark of grading can be run as it says; how fast anything was is for its readers to judge."""

import json
import os
import subprocess
import sys

import pytest
from confined import needs_bubblewrap

from lessons import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "benchmarks/grading.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--submissions", "1"], "--submissions must be at least 2, got 1"),
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--lessons", "00", "99"], "--lessons 00 99: there are 00-start, 01-mini-gpt"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(arguments, why):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


@needs_bubblewrap
@pytest.mark.slow
def test_the_last_line_is_json_with_every_figure_of_the_lesson():
    done = run("--lessons", "00", "--submissions", "2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert "\ngeometric mean: " in done.stdout
    result = json.loads(last)
    assert [found["value"] for found in result["bars"]] == list(result["geometric_means"].values())
    (row,) = result["rows"]
    assert (result["benchmark"], row["lesson"]) == ("grading", "00-start")
    assert {"cells and questions", "follow-through", "names of mistakes"} == set(row["parts"])
    for kind in ("solved", "wrong", "empty", "before_the_first", "memory"):
        assert set(row[kind]) == {"1", "2"}
    assert row["stock"] > 0
    assert row["memory"]["1"] > 100
