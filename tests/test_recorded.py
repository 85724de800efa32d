"""Runs recorded on GPUs: what is written is read again, and travels with the package."""

import tomllib

from course.measure.limits import Machine
from course.measure.recorded import FOLDER, Point, Recording, read, recordings, write
from lessons import ROOT

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


def test_no_shipped_run_claims_to_be_faster_than_its_machine():
    for run in recordings():
        assert run.points
        for point in run.points:
            assert point.flops_per_second <= run.machine.flops_per_second, (run.label, point)


def test_the_recordings_travel_with_the_package():
    assert FOLDER.is_dir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "runs/*.json" in project["tool"]["setuptools"]["package-data"]["course.measure"]
