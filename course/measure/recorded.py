"""Figures measured on GPUs, for readers who have none: small JSON files in course/measure/runs/.

`benchmarks/roofline.py --record DIR` writes them. A file holds one run:

    {"device": "NVIDIA …", "dtype": "bfloat16", "date": "2026-01-31",
     "command": "python benchmarks/roofline.py …", "versions": {"torch": "…", …},
     "machine": {"flops_per_second": …, "bytes_per_second": …},
     "points": [{"size": "1.3B", "phase": "decode", "batch": 1, "n_new": 1, "n_past": 512,
                 "flops": …, "bytes": …, "seconds": …}, …]}

A recorded figure is drawn as recorded: with its device and date, beside the reader's own.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from course.measure.limits import Machine

FOLDER = Path(__file__).parent / "runs"
PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Point:
    """One phase as it was measured.

    Attributes:
        size: the model's name in `course.published.sizes`.
        phase: "prefill" or "decode".
        batch: B, rows.
        n_new: T, new tokens of each row.
        n_past: P, tokens of each row that were in the cache.
        flops, bytes: what the phase must do and move at least.
        seconds: what it took.
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
    """One run of the benchmark on one GPU.

    Attributes:
        device: the GPU's name.
        dtype: of the weights, such as "bfloat16".
        date: of the run, as YYYY-MM-DD.
        command: what was run.
        versions: of torch and whatever else mattered.
        machine: its measured limits.
        points: the phases measured.
    """

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
    """All recorded runs, in the order of their file names; none is fine.

    Raises:
        ValueError: a file that is no such recording; the message names it and what is wrong.
    """
    return [read(path) for path in sorted(folder.glob("*.json"))]


def read(path: Path) -> Recording:
    """The run recorded in a file.

    Raises:
        ValueError: it is no such recording; the message names the file and what is wrong.
    """
    try:
        return _recording(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(
            f"{path.name} is no recording of course.measure.recorded: {error}"
        ) from error


def write(recording: Recording, folder: Path) -> Path:
    """Write a run into a folder, named after the device, the dtype and the models; an earlier run
    of the same name is replaced.

    Returns:
        The file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = dict.fromkeys(point.size for point in recording.points)
    name = re.sub(
        r"[^a-z0-9.]+", "-", " ".join([recording.device, recording.dtype, *sizes]).lower()
    )
    path = folder / f"{name}.json"
    content = asdict(recording)
    del content["machine"]["name"]  # it is the device's
    partial = folder / f"{name}.partial"
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)  # in one move: a recording is whole or not there
    return path


def _recording(found: Any) -> Recording:
    _check_keys("the file", found, [field.name for field in fields(Recording)])
    for name in ("device", "dtype", "date", "command"):
        _check_text(name, found[name])
    date.fromisoformat(found["date"])
    _check_texts("versions", found["versions"])
    _check_keys("machine", found["machine"], ["flops_per_second", "bytes_per_second"])
    machine = Machine(f"{found['device']}, {found['dtype']}", **found["machine"])
    if not isinstance(found["points"], list) or not found["points"]:
        raise ValueError("points must be a list of at least one point")
    points = tuple(_point(f"points[{i}]", point) for i, point in enumerate(found["points"]))
    return Recording(**{**found, "machine": machine, "points": points})


def _point(where: str, found: Any) -> Point:
    _check_keys(where, found, [field.name for field in fields(Point)])
    _check_text(f"{where}.size", found["size"])
    if found["phase"] not in PHASES:
        raise ValueError(f"{where}.phase must be prefill or decode, got {found['phase']!r}")
    for name, least in (("batch", 1), ("n_new", 1), ("n_past", 0)):
        if type(found[name]) is not int or found[name] < least:
            raise ValueError(
                f"{where}.{name} must be a whole number from {least}, got {found[name]!r}"
            )
    for name in ("flops", "bytes", "seconds"):
        value = found[name]
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise ValueError(f"{where}.{name} must be a finite number above 0, got {value!r}")
    return Point(**found)


def _check_keys(where: str, found: Any, wanted: list[str]) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"{where} must be an object, got {type(found).__name__}")
    if missing := [name for name in wanted if name not in found]:
        raise ValueError(f"{where} has no {', '.join(missing)}")
    if unknown := [name for name in found if name not in wanted]:
        raise ValueError(f"{where} has {', '.join(unknown)}, which nobody knows")


def _check_text(where: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where} must be a text, got {value!r}")


def _check_texts(where: str, found: Any) -> None:
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{where} must name at least one version")
    for name, value in found.items():
        _check_text(f"{where}.{name}", value)
