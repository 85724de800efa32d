"""The benchmark of grading can be run as it says; how fast anything was is for its readers to judge."""

import json

import pytest
from benchmarking import load, run
from confined import needs_bubblewrap

benchmark = load("grading")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(
            ["--submissions", "1"],
            "--submissions must be at least 2, got 1",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--rounds", "0"], "--rounds must be at least 1, got 0", marks=pytest.mark.slow
        ),
        (["--lessons", "00", "99"], "--lessons 00 99: there are 00-start, 01-mini-gpt"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(arguments, why):
    done = run("grading", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def rows_of(*stock: float) -> list:
    """Lessons 01, 02, … in which a submission takes one second with one job, and half of one with two."""
    halves = {1: 1.0, 2: 0.5}
    return [
        benchmark.Row(f"{number:02d}-name", seconds, halves, halves, halves, {}, {}, {})
        for number, seconds in enumerate(stock, 1)
    ]


def test_the_bars_of_a_mean_are_held_by_the_lessons_that_they_are_set_for():
    few = benchmark.bars_of(rows_of(7.9, 8.0))
    assert [(found["what"][:2], found["met"]) for found in few] == [("01", False), ("02", True)]
    every = benchmark.bars_of(rows_of(*[10.0] * 7, 1000.0))  # 08 has no bar, and is in no mean
    assert [found["value"] for found in every] == pytest.approx([10.0] * 8 + [20.0])
    assert [found["met"] for found in every] == [True] * 7 + [False, False]
    assert all(found["met"] for found in benchmark.bars_of(rows_of(*[16.0] * 7)))


@needs_bubblewrap
@pytest.mark.slow
def test_the_last_line_is_json_with_every_figure_of_the_lesson():
    done = run("grading", "--lessons", "00", "--submissions", "2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert "\ngeometric mean: " in done.stdout
    result = json.loads(last)
    (row,) = result["rows"]
    assert result["geometric_means"] == {n: row["stock"] / row["solved"][n] for n in ("1", "2")}
    assert result["bars"] == []  # none is set for lesson 00
    assert (result["benchmark"], row["lesson"]) == ("grading", "00-start")
    assert {"cells and questions", "follow-through", "names of mistakes"} == set(row["parts"])
    for kind in ("solved", "wrong", "empty", "before_the_first", "memory"):
        assert set(row[kind]) == {"1", "2"}
    assert row["stock"] > 0
    assert row["memory"]["1"] > 100
