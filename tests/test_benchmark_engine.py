"""The benchmark of the engine can be run as it says, and times only ways that give the same texts."""

import json

import pytest
from benchmarking import load, run

benchmark = load("engine")


@pytest.mark.slow
def test_every_way_is_measured_and_the_last_line_is_json(tmp_path):
    done = run("engine", "--quick", "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert json.loads((tmp_path / "out.json").read_text()) == result
    assert {"one by one", "engine", "transformers, one by one"} < set(result["table"])
    for row in result["table"].values():
        assert 0 < row["seconds"] <= row["median_seconds"]
    places = [done.stdout.index(part) for part in ('"versions"', "The ceiling", "shortest")]
    assert places == sorted(places)


def test_another_text_gets_no_clock():
    ways = {"one by one": lambda prompts: [[1]], "other": lambda prompts: [[2]]}
    with pytest.raises(AssertionError, match="other gives other texts"):
        benchmark.check_equal(ways, [[3]])


def test_prompts_have_a_beginning_in_common():
    prompts = benchmark.draw_prompts()
    assert {tuple(prompt[:100]) for prompt in prompts} == {tuple(prompts[0][:100])}
    assert {len(prompt) for prompt in prompts} == {120}
