"""Recorded figures: what is written is read again, and what is no recording is refused by name."""

import json

import pytest

from course.measure import recorded
from course.measure.limits import Machine
from course.measure.recorded import Point, Recording, read, recordings, write

RUN = Recording(
    device="A GPU of 1999",
    dtype="bfloat16",
    date="2026-01-31",
    command="python benchmarks/roofline.py --device cuda",
    versions={"torch": "0.0"},
    machine=Machine("A GPU of 1999, bfloat16", 4e12, 2e12),
    points=(
        Point("1.3B", "decode", 1, 1, 512, flops=6e9, bytes=3e9, seconds=2e-3),
        Point("1.3B", "prefill", 1, 256, 0, flops=8e11, bytes=4e9, seconds=0.5),
    ),
)


@pytest.fixture
def content(tmp_path) -> dict:
    return json.loads(write(RUN, tmp_path).read_text())


def test_what_was_written_is_read_again(tmp_path):
    path = write(RUN, tmp_path)
    assert path.name == "a-gpu-of-1999-bfloat16-1.3b.json"
    assert read(path) == RUN
    assert recordings(tmp_path) == [RUN]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_label_says_that_it_is_recorded_on_what_and_when():
    assert RUN.label == "A GPU of 1999, bfloat16, recorded 2026-01-31"


def test_a_point_has_an_intensity_and_a_rate():
    decode, prefill = RUN.points
    assert decode.intensity == 2.0
    assert prefill.flops_per_second == 1.6e12


def test_an_empty_folder_is_fine(tmp_path):
    assert recordings(tmp_path) == []
    assert recordings(tmp_path / "missing") == []


def test_every_recording_that_is_shipped_can_be_read():
    for run in recordings():
        assert run.points
        assert run.machine.flops_per_second > 0
        # None may claim to be faster than the machine it was measured on.
        for point in run.points:
            assert point.flops_per_second <= run.machine.flops_per_second, (run.label, point)


def test_the_recordings_travel_with_the_package():
    assert recorded.FOLDER.is_dir()
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    assert "recorded/*.json" in data["course"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.pop("machine"), "the file has no machine"),
        (lambda run: run.update(extra=1), "the file has extra, which nobody knows"),
        (lambda run: run.update(device=""), "device must be a text"),
        (lambda run: run.update(date="yesterday"), "yesterday"),
        (lambda run: run.update(versions={}), "versions must name at least one"),
        (lambda run: run.update(versions={"torch": 2}), r"versions\.torch must be a text, got 2"),
        (lambda run: run["machine"].update(flops_per_second=0), "flops_per_second must be"),
        (lambda run: run.update(points=[]), "points must be a list of at least one"),
        (lambda run: run["points"].append(3), r"points\[2\] must be an object, got int"),
        (lambda run: run["points"][1].pop("n_past"), r"points\[1\] has no n_past"),
        (lambda run: run["points"][0].update(phase="sleep"), r"points\[0\]\.phase.*'sleep'"),
        (lambda run: run["points"][0].update(batch=0), r"points\[0\]\.batch.*from 1, got 0"),
        (lambda run: run["points"][0].update(seconds=-1), r"points\[0\]\.seconds.*above 0"),
        (lambda run: run["points"][0].update(flops=float("nan")), r"points\[0\]\.flops.*nan"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path, content, change, message):
    change(content)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"odd.json is no recording.*{message}"):
        read(path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"3"])
def test_a_file_of_something_else_is_named(tmp_path, data):
    path = tmp_path / "odd.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"odd\.json is no recording"):
        recordings(tmp_path)
