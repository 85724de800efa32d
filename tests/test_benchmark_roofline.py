"""The benchmarks can be run as they say; how fast anything was is for their readers to judge."""

import json
import subprocess
import time

import pytest
from benchmarking import load, refusal, run

from course.measure.devices import CpuDevice
from course.measure.recorded import recordings
from course.published.sizes import SIZES

benchmark = load("roofline")

SMALL = ["--size", "tiny", "--rounds", "1"]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> subprocess.CompletedProcess:
    folder = tmp_path_factory.mktemp("benchmark")
    out, record = str(folder / "out.json"), str(folder / "record")
    done = run("roofline", *SMALL, "--transformers", "--out", out, "--record", record)
    assert done.returncode == 0, done.stderr
    done.result = json.loads(done.stdout.splitlines()[-1])
    done.folder = folder
    return done


@pytest.mark.slow
def test_the_last_line_is_json_and_so_is_the_file(done):
    assert done.result["benchmark"] == "roofline"
    assert json.loads((done.folder / "out.json").read_text()) == done.result


@pytest.mark.slow
def test_the_ceiling_and_the_memory_are_told_before_anything_is_measured(done):
    told = done.stdout
    places = [told.index(part) for part in ('"versions"', "The ceiling", "GB are free", "shortest")]
    assert places == sorted(places)


@pytest.mark.slow
def test_every_phase_has_what_was_predicted_and_what_was_measured(done):
    points = done.result["points"]
    prefills = [point["n_new"] for point in points if point["phase"] == "prefill"]
    assert {64, 256, 1024} <= set(prefills)
    assert {point["batch"] for point in points if point["phase"] == "decode"} == {1, 2, 4, 8, 16}
    for point in points:
        assert 0 < point["seconds"] <= point["median_seconds"]
        assert point["predicted_bound"] in ("memory", "compute")
        assert point["measured_bound"] in ("memory", "compute", "neither")
        assert point["apart"] or point["batch"] * point["n_new"] not in range(2, 17)


@pytest.mark.slow
def test_a_model_that_fits_into_a_cache_is_held_against_no_bar(done):
    assert done.result["bars"] == []


@pytest.mark.slow
def test_transformers_says_the_same_tokens(done):
    (beside,) = done.result["transformers"]
    assert beside["equal_tokens"] == "64 of 64"


@pytest.mark.slow
def test_a_record_is_one_that_the_course_reads(done):
    (recording,) = recordings(done.folder / "record")
    assert recording.date == done.result["date"]
    assert len(recording.points) == len(done.result["points"])
    assert recording.command.startswith("python benchmarks/roofline.py --size tiny")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        (["--size", "huge"], "invalid choice: 'huge'"),
        (["--size", "tiny", "1.3B"], "must have one dtype"),
        (["--rounds", "0"], "--rounds must be at least 1"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(arguments, said):
    assert said in refusal("roofline", arguments)


def test_calls_take_turns_and_where_the_core_was_not_theirs_there_are_more_rounds():
    order = []
    calls = {
        "waits": lambda: (order.append("w"), time.sleep(0.002)),
        "b": lambda: order.append("b"),
    }
    samples = benchmark.measure(calls, CpuDevice(), rounds=2)
    assert "".join(order) == "wb" * (1 + 3 * 2)  # a warm-up, and three times the rounds
    assert all(len(found.wall) == len(found.cpu) == 6 for found in samples.values())
    assert benchmark.disturbed(samples, CpuDevice())
    quiet = {"a": benchmark.Samples(wall=[3.0, 1.0], cpu=[1.0, 1.0])}
    assert not benchmark.disturbed(quiet, CpuDevice())
    assert not benchmark.disturbed(samples, device=object())  # a GPU: its work is nowhere in cpu


@pytest.mark.parametrize(
    ("of_bandwidth", "of_matmul", "bound", "met"),
    [
        (0.45, 0.65, "memory", [True, True, True]),
        (0.44, 0.65, "neither", [False, True, False]),
        (0.45, 0.64, "memory", [True, False, True]),
    ],
)
def test_a_bar_is_met_or_missed(of_bandwidth, of_matmul, bound, met):
    decode = {"phase": "decode", "batch": 1, "n_new": 1, "apart": False}
    decode |= {"of_bandwidth": of_bandwidth, "of_matmul_rate": 0.1}
    decode |= {"predicted_bound": "memory", "measured_bound": bound}
    prefill = {"phase": "prefill", "batch": 1, "n_new": 256, "apart": False}
    prefill |= {"of_bandwidth": 0.1, "of_matmul_rate": of_matmul}
    prefill |= {"predicted_bound": "compute", "measured_bound": "compute"}
    unsure = decode | {"batch": 8, "apart": True, "measured_bound": "neither"}
    bars = benchmark.bars_of(SIZES["cpu"], [decode, prefill, unsure], on_cpu=True)
    assert [bar["met"] for bar in bars] == met
    assert benchmark.bars_of(SIZES["tiny"], [decode, prefill], on_cpu=True) == []
