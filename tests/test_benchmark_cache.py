"""The benchmark of caches can be run as it says; how fast anything was is for its readers to judge."""

import json
import subprocess

import pytest
from benchmarking import load, refusal, run

SMALL = ["--context", "300", "--layers", "2", "--rounds", "1"]
WAYS = {
    "fp32, matmul",
    "fp32, matmul, queries first",
    "fp32, SDPA",
    "fp32, repeat_interleave",
    "fp32, 16 KV heads",
    "int8, dequantize everything",
    "int8, tiled",
    "int4, dequantize everything",
    "int4, tiled",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> subprocess.CompletedProcess:
    out = tmp_path_factory.mktemp("benchmark") / "out.json"
    done = run("cache", *SMALL, "--out", str(out))
    assert done.returncode == 0, done.stderr
    done.result = json.loads(done.stdout.splitlines()[-1])
    done.out = out
    return done


def test_the_last_line_is_json_and_so_is_the_file(done):
    keys = {"benchmark", "command", "device", "load", "versions", "shape", "machine", "steps"}
    assert keys | {"differences", "bars", "not_measured"} <= set(done.result)
    assert done.result["benchmark"] == "cache"
    assert json.loads(done.out.read_text()) == done.result


def test_the_machine_and_its_ceiling_are_told_before_anything_is_measured(done):
    places = [
        done.stdout.index(part) for part in ('"versions"', "The ceiling", "measured", "No bars")
    ]
    assert places == sorted(places)


def test_every_way_is_checked_and_then_measured(done):
    assert set(done.result["steps"]) >= WAYS
    assert set(done.result["differences"]) == WAYS
    assert all(off <= 1e-4 for off in done.result["differences"].values())
    for row in done.result["steps"].values():
        assert 0 < row["seconds"] <= row["median_seconds"]
        assert row["layers"] == 2


def test_bytes_are_those_of_the_storage(done):
    """4 whole groups of 64 tokens and 44 in the window, 4 heads of width 128, scales of 16 bits."""
    steps = 2 * 128 + 2 * 64  # of a group: scales and zeros of channels (keys), of tokens (values)
    numbers = 4 * 4 * steps  # heads, groups
    window = 2 * 4 * 44 * 128 * 4
    for bits in (8, 4):
        codes = 2 * 4 * 4 * 64 * 128 * bits // 8
        assert done.result["steps"][f"int{bits}, tiled"]["bytes"] == codes + 2 * numbers + window


def test_a_short_context_is_held_against_no_bar(done):
    assert done.result["bars"] == []
    assert "MISSED" not in done.stdout


@pytest.mark.parametrize(("seconds", "met"), [(1.15, True), (1.16, False)])
def test_tiled_reads_may_take_a_seventh_longer(seconds, met):
    every = dict.fromkeys(("seconds", "median_seconds"), 1.0)
    rows = dict.fromkeys(WAYS, every) | {"int8, tiled": dict.fromkeys(every, seconds)}
    first = load("cache").bars_of(rows, heads=16)[0]
    assert (first["what"], first["value"], first["met"]) == ("int8 tiled beside fp32", seconds, met)


def test_what_transformers_cannot_do_here_is_said_and_not_hidden(done):
    theirs = {name for name in done.result["steps"] if name.startswith("transformers")}
    assert "transformers DynamicCache, fp32" in theirs
    assert len(theirs) + len(done.result["not_measured"]) == 4
    assert all(done.result["not_measured"].values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        pytest.param(["--context", "12"], "--context must be at least 128", marks=pytest.mark.slow),
        pytest.param(["--rounds", "0"], "--rounds must be at least 1", marks=pytest.mark.slow),
        pytest.param(["--layers", "-1"], "--layers must be at least 1", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(arguments, said):
    assert said in refusal("cache", arguments)
