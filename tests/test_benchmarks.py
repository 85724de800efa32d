"""The benchmarks run as they say and time only right results; how fast anything was, readers judge."""

import importlib
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from confined import needs_bubblewrap

from course.measure.devices import CpuDevice
from course.measure.recorded import recordings
from course.published.sizes import SIZES
from lessons import ROOT

sys.path.append(str(ROOT / "benchmarks"))
NAMES = ("cache", "decode", "engine", "grading", "harness", "roofline")
cache, decode, engine, grading, harness, roofline = map(importlib.import_module, NAMES)

SHORT = {
    "cache": ["--context", "300", "--layers", "2", "--rounds", "1"],
    "decode": ["--quick"],
    "engine": ["--quick"],
    "grading": ["--lessons", "00", "--submissions", "2", "--rounds", "1"],
    "roofline": ["--size", "tiny", "--rounds", "1", "--transformers"],
}


def recorded(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "recorded" / f"{name}.json").read_text("utf-8"))


# The ways that the README's table is made of: every one is still measured.
CACHE_WAYS = {name for name in recorded("cache")["steps"] if not name.startswith("transformers")}
DECODE_WAYS = set(recorded("decode")["texts"]["d64"]["1"])


def run_short(name: str, folder: Path, *more: str) -> SimpleNamespace:
    """Run a benchmark as users do, on little work: what it printed, and the JSON of its last line."""
    out = folder / "out.json"
    command = [sys.executable, f"benchmarks/{name}.py", *SHORT[name], *more, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(out.read_text()) == result
    assert result["benchmark"] == name
    assert result["command"].startswith(f"python benchmarks/{name}.py {SHORT[name][0]}")
    return SimpleNamespace(stdout=done.stdout, result=result, folder=folder)


def assert_order(text: str, *parts: str) -> None:
    places = [text.index(part) for part in parts]
    assert places == sorted(places), parts


def assert_measured(rows) -> None:
    for row in rows:
        assert 0 < row["seconds"] <= row["median_seconds"]


@pytest.mark.parametrize(
    ("benchmark", "arguments", "message"),
    [
        (cache, ["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        (cache, ["--context", "12"], "--context: must be at least 128"),
        (cache, ["--rounds", "0"], "--rounds: must be at least 1"),
        (cache, ["--layers", "-1"], "--layers: must be at least 1"),
        (decode, ["--rounds", "0"], "--rounds: must be at least 1"),
        (decode, ["--sizes", "d5"], "invalid choice"),
        (decode, ["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        (engine, ["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        (engine, ["--new", "0"], "--new: must be at least 1"),
        (grading, ["--submissions", "1"], "--submissions: must be at least 2, got 1"),
        (grading, ["--rounds", "0"], "--rounds: must be at least 1, got 0"),
        (grading, ["--lessons", "00", "99"], "--lessons 00 99: there are 00-start, 01-mini-gpt"),
        (roofline, ["--device", "tpu"], 'device must be "cpu" or "cuda"'),
        (roofline, ["--size", "huge"], "invalid choice: 'huge'"),
        (roofline, ["--size", "tiny", "1.3B"], "must have one dtype"),
        (roofline, ["--rounds", "0"], "--rounds: must be at least 1"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_runs(benchmark, arguments, message, capsys):
    with pytest.raises(SystemExit) as left:
        benchmark.main(arguments)
    printed = capsys.readouterr()
    assert (left.value.code, printed.out) == (2, "")
    assert message in printed.err


# --- cache ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache_run(tmp_path_factory) -> SimpleNamespace:
    return run_short("cache", tmp_path_factory.mktemp("cache"))


@pytest.mark.slow
def test_every_way_to_read_a_cache_is_checked_and_then_measured(cache_run):
    assert_order(cache_run.stdout, '"versions"', "The ceiling", "measured", "No bars")
    result = cache_run.result
    assert {"device", "load", "versions", "shape", "machine"} <= set(result)
    assert set(result["steps"]) >= CACHE_WAYS
    assert set(result["differences"]) == CACHE_WAYS
    assert all(difference <= 1e-4 for difference in result["differences"].values())
    assert_measured(result["steps"].values())
    assert {row["layers"] for row in result["steps"].values()} == {2}


@pytest.mark.slow
def test_bytes_are_those_of_the_storage(cache_run):
    """4 whole groups of 64 tokens and 44 in the window, 4 heads of width 128, scales of 16 bits."""
    steps = 2 * 128 + 2 * 64  # of a group: scales and zeros of channels (keys), of tokens (values)
    numbers = 4 * 4 * steps  # heads, groups
    window = 2 * 4 * 44 * 128 * 4
    for bits in (8, 4):
        codes = 2 * 4 * 4 * 64 * 128 * bits // 8
        row = cache_run.result["steps"][f"int{bits}, tiled"]
        assert row["bytes"] == codes + 2 * numbers + window


@pytest.mark.slow
def test_a_short_context_is_held_against_no_bar(cache_run):
    assert cache_run.result["bars"] == []
    assert "MISSED" not in cache_run.stdout


@pytest.mark.parametrize(("seconds", "met"), [(1.15, True), (1.16, False)])
def test_tiled_reads_may_take_a_seventh_longer(seconds, met):
    every = dict.fromkeys(("seconds", "median_seconds"), 1.0)
    rows = dict.fromkeys(CACHE_WAYS, every) | {"int8, tiled": dict.fromkeys(every, seconds)}
    first = cache.bars_of(rows, heads=16)[0]
    assert (first["what"], first["value"], first["met"]) == ("int8 tiled beside fp32", seconds, met)


@pytest.mark.slow
def test_what_transformers_cannot_do_here_is_said_and_not_hidden(cache_run):
    theirs = {name for name in cache_run.result["steps"] if name.startswith("transformers")}
    assert "transformers DynamicCache, fp32" in theirs
    assert len(theirs) + len(cache_run.result["not_measured"]) == 4
    assert all(cache_run.result["not_measured"].values())


# --- decode and engine ---------------------------------------------------------------------------


@pytest.mark.slow
def test_every_way_to_decode_is_measured(tmp_path):
    done = run_short("decode", tmp_path)
    assert_order(done.stdout, '"versions"', "The ceiling", "shortest")
    tables = done.result["texts"]["d64"]
    assert set(tables["1"]) == set(tables["16"]) == DECODE_WAYS
    assert set(done.result["lengths"]) == {"50", "256"}
    assert_measured(tables["1"].values())


@pytest.mark.slow
def test_every_way_to_serve_is_measured(tmp_path):
    done = run_short("engine", tmp_path)
    assert_order(done.stdout, '"versions"', "The ceiling", "shortest")
    table = done.result["table"]
    assert {"one by one", "engine", "transformers, one by one"} < set(table)
    assert_measured(table.values())
    assert set(done.result["alone"]) == {"story"}
    assert set(done.result["alone"]["story"]) == {"lesson 03", "engine", "transformers"}


def test_all_ways_write_one_text_and_another_text_gets_no_clock():
    size = decode.SIZES["d64"]
    model = decode.build_random(size, torch.device("cpu"))
    theirs = harness.as_transformers(size, model, torch.device("cpu"))
    prompt = torch.randint(size.config.vocab_size, (2, 5))
    ways = decode.ways_of(size, model, theirs, batch=2, length=12)
    assert set(ways) == DECODE_WAYS
    harness.check_equal(ways, prompt, 7, but=("int8",))
    ways["cat"] = lambda prompt, n_new: prompt
    with pytest.raises(AssertionError, match="cat writes another text"):
        harness.check_equal(ways, prompt, 7, but=("int8",))
    lists = {"one by one": lambda prompts: [[1]], "other": lambda prompts: [[2]]}
    with pytest.raises(AssertionError, match="other writes another text"):
        harness.check_equal(lists, [[3]])


@pytest.mark.parametrize(
    ("name", "bars_of"),
    [
        ("cache", lambda run: cache.bars_of(run["steps"], run["shape"]["H"])),
        ("decode", lambda run: decode.bars_of(run["texts"], run["lengths"])),
        ("engine", lambda run: engine.bars_of(run["table"], run["alone"])),
        ("engine-cuda", lambda run: engine.bars_of(run["table"], run["alone"], engine.ON_A_GPU)),
        ("roofline", lambda run: roofline.bars_of(SIZES["cpu"], run["points"], on_cpu=True)),
    ],
)
def test_what_is_recorded_is_held_against_the_bars_that_are_set(name, bars_of):
    run = recorded(name)
    assert bars_of(run) == run["bars"]


@pytest.mark.parametrize(
    ("name", "compiled"), [("roofline-cuda", False), ("roofline-cuda-compiled", True)]
)
def test_what_is_recorded_of_a_gpu_is_held_against_its_bars(name, compiled):
    run, by_size = recorded(name), {}
    for point in run["points"]:
        by_size.setdefault(point["size"], []).append(point)
    expected = [
        bar
        for size, points in by_size.items()
        for bar in roofline.bars_of(SIZES[size], points, on_cpu=False, compiled=compiled)
    ]
    assert [bar for bar in run["bars"] if "transformers" not in bar["what"]] == expected


def test_plain_code_and_fast_decode_have_different_bars():
    seconds = {"preallocated": 1.0, "fast decode": 0.4, decode.PEERS[0]: 1.0, decode.PEERS[1]: 2.0}
    table = {name: {"seconds": value} for name, value in seconds.items()}
    bars = decode.bars_of({"d64": {1: table}}, {})
    assert [(each["value"], each["met"]) for each in bars] == [(1.0, True), (2.5, False)]


def test_the_largest_model_has_the_parameters_of_gpt_2_small():
    assert 120e6 < decode.SIZES["124M"].parameters < 127e6


def test_prompts_have_a_beginning_in_common():
    prompts = engine.draw_prompts()
    assert {tuple(prompt[:100]) for prompt in prompts} == {tuple(prompts[0][:100])}
    assert {len(prompt) for prompt in prompts} == {120}


# --- grading -------------------------------------------------------------------------------------


def rows_of(*stock: float) -> list:
    """Lessons 01, 02, … in which a submission takes one second with one job, and half of one with two."""
    halves = {1: 1.0, 2: 0.5}
    return [
        grading.Row(f"{number:02d}-name", seconds, halves, halves, halves, {}, {}, {})
        for number, seconds in enumerate(stock, 1)
    ]


def test_the_bars_of_a_mean_are_held_by_the_lessons_that_they_are_set_for():
    few = grading.bars_of(rows_of(7.9, 8.0))
    assert [(each["what"][:2], each["met"]) for each in few] == [("01", False), ("02", True)]
    every = grading.bars_of(rows_of(*[10.0] * 7, 1000.0))  # 08 has no bar, and is in no mean
    assert [each["value"] for each in every] == pytest.approx([10.0] * 8 + [20.0])
    assert [each["met"] for each in every] == [True] * 7 + [False, False]
    assert all(each["met"] for each in grading.bars_of(rows_of(*[16.0] * 7)))


@needs_bubblewrap
@pytest.mark.slow
def test_grading_measures_every_kind_of_submission(tmp_path):
    done = run_short("grading", tmp_path)
    assert "\ngeometric mean: " in done.stdout
    (row,) = done.result["rows"]
    assert done.result["geometric_means"] == {
        n: row["stock"] / row["solved"][n] for n in ("1", "2")
    }
    assert done.result["bars"] == []  # none is set for lesson 00
    assert row["lesson"] == "00-start"
    parts = {"cells and questions", "one definition", "follow-through", "house rules"}
    parts |= {"names of mistakes"}
    assert parts == set(row["parts"])
    for kind in ("solved", "wrong", "empty", "before_the_first", "memory"):
        assert set(row[kind]) == {"1", "2"}
    assert row["stock"] > 0
    assert row["memory"]["1"] > 100


# --- roofline ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def roofline_run(tmp_path_factory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("roofline")
    return run_short("roofline", folder, "--record", str(folder / "record"))


@pytest.mark.slow
def test_every_phase_has_what_was_predicted_and_what_was_measured(roofline_run):
    assert_order(roofline_run.stdout, '"versions"', "The ceiling", "GB are free", "shortest")
    points = roofline_run.result["points"]
    prefills = [point["n_new"] for point in points if point["phase"] == "prefill"]
    assert {64, 256, 1024} <= set(prefills)
    assert {point["batch"] for point in points if point["phase"] == "decode"} == {1, 2, 4, 8, 16}
    assert_measured(points)
    for point in points:
        assert point["predicted_bound"] in ("memory", "compute")
        assert point["measured_bound"] in ("memory", "compute", "neither")
        assert point["apart"] or point["batch"] * point["n_new"] not in range(2, 17)


@pytest.mark.slow
def test_a_model_that_fits_into_a_cache_is_held_against_no_bar(roofline_run):
    assert roofline_run.result["bars"] == []


@pytest.mark.slow
def test_transformers_says_the_same_tokens(roofline_run):
    (beside,) = roofline_run.result["transformers"]
    assert beside["equal_tokens"] == "64 of 64"


@pytest.mark.slow
def test_a_record_is_one_that_the_course_reads(roofline_run):
    (recording,) = recordings(roofline_run.folder / "record")
    assert recording.date == roofline_run.result["date"]
    assert len(recording.points) == len(roofline_run.result["points"])
    assert recording.command.startswith("python benchmarks/roofline.py --size tiny")


@pytest.mark.parametrize(
    ("of_bandwidth", "of_matmul", "bound", "met"),
    [
        (0.45, 0.65, "memory", [True, True, True]),
        (0.44, 0.65, "neither", [False, True, False]),
        (0.45, 0.64, "memory", [True, False, True]),
    ],
)
def test_a_bar_is_met_or_missed(of_bandwidth, of_matmul, bound, met):
    point = {"phase": "decode", "batch": 1, "n_new": 1, "apart": False, "of_matmul_rate": 0.1}
    point |= {"of_bandwidth": 0.1, "predicted_bound": "memory", "measured_bound": bound}
    decodes = point | {"of_bandwidth": of_bandwidth}
    prefill = point | {"phase": "prefill", "n_new": 256, "of_matmul_rate": of_matmul}
    prefill |= {"predicted_bound": "compute", "measured_bound": "compute"}
    unsure = decodes | {"batch": 8, "apart": True, "measured_bound": "neither"}
    bars = roofline.bars_of(SIZES["cpu"], [decodes, prefill, unsure], on_cpu=True)
    assert [each["met"] for each in bars] == met
    assert roofline.bars_of(SIZES["tiny"], [decodes, prefill], on_cpu=True) == []


# --- harness -------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [False, True])  # the bar: TQDM_DISABLE=1
def test_calls_take_turns_and_where_the_core_was_shared_there_are_more_rounds(monkeypatch, hidden):
    monkeypatch.setattr(harness, "tqdm", partial(harness.tqdm, disable=hidden))
    order = []
    calls = {
        "waits": lambda: (order.append("w"), time.sleep(0.002)),
        "b": lambda: order.append("b"),
    }
    samples = harness.measure(calls, CpuDevice(), rounds=2)
    assert "".join(order) == "wb" * (1 + 3 * 2)  # a warm-up, and three times the rounds
    assert all(len(each.wall) == len(each.cpu) == 6 for each in samples.values())
    assert harness.disturbed(samples, CpuDevice())
    quiet = {"a": harness.Samples(wall=[3.0, 1.0], cpu=[1.0, 1.0])}
    assert not harness.disturbed(quiet, CpuDevice())
    assert not harness.disturbed(samples, device=object())  # a GPU: its work is nowhere in cpu
