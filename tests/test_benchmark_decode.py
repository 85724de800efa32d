"""The benchmark of decode can be run as it says, and times only ways that write the same text."""

import json

import pytest
import torch
from benchmarking import load, refusal, run

benchmark = load("decode")

WAYS = {
    "naive",
    "cat",
    "preallocated",
    "int8",
    "fast decode",
    "transformers, dynamic",
    "transformers, static",
    "transformers, own loop",
}


@pytest.mark.slow
def test_every_way_is_measured_and_the_last_line_is_json(tmp_path):
    done = run("decode", "--quick", "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert json.loads((tmp_path / "out.json").read_text()) == result
    assert set(result["texts"]["d64"]["1"]) == set(result["texts"]["d64"]["16"]) == WAYS
    assert set(result["lengths"]) == {"50", "256"}
    for row in result["texts"]["d64"]["1"].values():
        assert 0 < row["seconds"] <= row["median_seconds"]
    places = [done.stdout.index(part) for part in ('"versions"', "The ceiling", "shortest")]
    assert places == sorted(places)


def test_all_ways_write_one_text_and_another_text_gets_no_clock():
    size = benchmark.SIZES["d64"]
    model = benchmark.build_random(size, torch.device("cpu"))
    theirs = benchmark.as_transformers(size, model, torch.device("cpu"))
    prompt = torch.randint(size.config.vocab_size, (2, 5))
    ways = benchmark.ways_of(size, model, theirs, batch=2, length=12)
    assert set(ways) == WAYS
    benchmark.check_equal(ways, prompt, 7)
    ways["cat"] = lambda prompt, n_new: prompt
    with pytest.raises(AssertionError, match="cat writes another text"):
        benchmark.check_equal(ways, prompt, 7)


def test_the_largest_model_has_the_parameters_of_gpt_2_small():
    assert 120e6 < benchmark.SIZES["124M"].parameters < 127e6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--rounds", "0"], "--rounds must be at least 1"), (["--sizes", "d5"], "invalid choice")],
)
def test_a_wrong_argument_is_refused_in_one_line(arguments, said):
    assert said in refusal("decode", arguments)
