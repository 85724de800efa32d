"""The benchmark of the engine can be run as it says, and times only ways that give the same texts."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from lessons import ROOT


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    spec = importlib.util.spec_from_file_location("engine", ROOT / "benchmarks" / "engine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_way_is_measured_and_the_last_line_is_json(tmp_path):
    command = [
        sys.executable,
        "benchmarks/engine.py",
        "--quick",
        "--out",
        str(tmp_path / "out.json"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert json.loads((tmp_path / "out.json").read_text()) == result
    assert {"one by one", "engine", "transformers, one by one"} < set(result["table"])
    for row in result["table"].values():
        assert 0 < row["seconds"] <= row["median_seconds"]
    places = [done.stdout.index(part) for part in ('"versions"', "The ceiling", "shortest")]
    assert places == sorted(places)


def test_another_text_gets_no_clock(benchmark):
    ways = {"one by one": lambda prompts: [[1]], "other": lambda prompts: [[2]]}
    with pytest.raises(AssertionError, match="other gives other texts"):
        benchmark.check_equal(ways, [[3]])


def test_prompts_have_a_beginning_in_common(benchmark):
    prompts = benchmark.draw_prompts()
    assert {tuple(prompt[:100]) for prompt in prompts} == {tuple(prompts[0][:100])}
    assert {len(prompt) for prompt in prompts} == {120}
