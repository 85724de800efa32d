"""The log's table of ratios says what the kept runs say, and marks what misses its bar."""

import json

from autograder.authoring.speed import speed_table
from lessons import ROOT

RUN = {
    "command": "python benchmarks/decode.py",
    "date": "2026-11-23",
    "device": "AMD EPYC",
    "cores": 2,
    "load": 0.25,
    "versions": {"torch": "2.13.0"},
}


def bar(what: str, value: float, limit: str, met: bool) -> dict:
    return {"what": what, "value": value, "bar": limit, "met": met}


def test_each_ratio_has_a_row_and_each_run_its_machine_and_date(tmp_path):
    bars = [bar("a way", 2.345, "at least 2.3", True), bar("another", 1.2, "at most 1.15", False)]
    (tmp_path / "decode.json").write_text(json.dumps(RUN | {"bars": bars}))
    slower = [bar("a third", 27.21, "at least 20", True)]
    (tmp_path / "engine.json").write_text(
        json.dumps(RUN | {"command": "python benchmarks/engine.py", "bars": slower})
    )
    machine = "2026-11-23, AMD EPYC, 2 cores, load 0.2 at the start; torch 2.13.0."
    assert speed_table(tmp_path).splitlines() == [
        "| what | measured | bar |",
        "|---|---|---|",
        "| a way | 2.35 | ≥ 2.3 |",
        "| another | **1.20, missed** | ≤ 1.15 |",
        "| a third | 27.2 | ≥ 20 |",
        "",
        f"* `python benchmarks/decode.py`: {machine}",
        f"* `python benchmarks/engine.py`: {machine}",
    ]


def test_without_a_run_it_says_how_to_get_one(tmp_path):
    assert "make bench RECORD=yes" in speed_table(tmp_path)


def test_no_recorded_ratio_misses_its_bar():
    assert "missed" not in speed_table(ROOT / "benchmarks" / "recorded")
