"""Recorded runs of `benchmarks/roofline.py` on GPUs, for readers who have none.

Each is one JSON file in `course/measure/runs`, written by `--record` and read by lesson 05, which
draws it with its device and date beside the reader's own points.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from course.measure.limits import Machine

FOLDER = Path(__file__).parent / "runs"


@dataclass(frozen=True)
class Point:
    """One phase as it was measured.

    Attributes:
        size: the model's name in `course.published.sizes`.
        phase: "prefill" or "decode".
        batch, n_new, n_past: B rows of T new tokens after P cached ones.
        flops, bytes: the least that the phase must compute and move.
        seconds: the time that it took.
    """

    size: str
    phase: str
    batch: int
    n_new: int
    n_past: int
    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops / self.bytes

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds


@dataclass(frozen=True)
class Recording:
    """One run of the benchmark on one GPU: on what, of which weights' dtype, when (YYYY-MM-DD), by
    which command and versions; the limits measured then, and the phases."""

    device: str
    dtype: str
    date: str
    command: str
    versions: dict[str, str]
    machine: Machine
    points: tuple[Point, ...]

    @property
    def label(self) -> str:
        """For a legend: "NVIDIA …, bfloat16, recorded 2026-01-31"."""
        return f"{self.device}, {self.dtype}, recorded {self.date}"


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """Read all recorded runs of a folder, in the order of their file names; none is fine."""
    return [read(path) for path in sorted(folder.glob("*.json"))]


def read(path: Path) -> Recording:
    """Read a file that `write` wrote."""
    data = json.loads(path.read_text(encoding="utf-8"))
    machine = Machine(**data.pop("machine"))
    points = tuple(Point(**point) for point in data.pop("points"))
    return Recording(**data, machine=machine, points=points)


def write(recording: Recording, folder: Path) -> Path:
    """Write a run into a folder, in one move; an earlier one of the same name is replaced.

    Returns:
        The file, named after the device, the dtype and the models.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = dict.fromkeys(point.size for point in recording.points)
    words = " ".join([recording.device, recording.dtype, *sizes]).lower()
    path = folder / f"{re.sub(r'[^a-z0-9.]+', '-', words)}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(recording), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path
