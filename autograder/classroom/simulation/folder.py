"""Lay out a simulated class: a course folder of its own, with what it has to get in `expected.json`."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from autograder.classroom.course import ROSTER, CannotStart
from autograder.classroom.roster import Student
from autograder.classroom.simulation.kinds import Desk, Work, draw_kinds, name_of
from autograder.classroom.simulation.material import ROOT, Material
from autograder.classroom.simulation.names import draw_students, roster_text

EXPECTED = "expected.json"
AGAIN = "handed_in_again"
"""The folder of what is handed in when the class was graded once, laid out as grading/submitted."""
MARK = "simulated"
"""The entry of `expected.json` by which a simulated class is known."""
BEGUN = datetime(2026, 11, 2, 8)
"""When the first student hands in, in UTC."""
CONFIG = """
# --- of a simulated class -------------------------------------------------------------------------
# Some of its students wait for ever. These are far less than a real class needs; raise them on a
# slow machine.
c.Judge.cell_seconds = 5
c.Judge.question_seconds = 5
c.Judge.submission_seconds = 120
"""


@dataclass(frozen=True)
class Plan:
    """Of what a simulated class is made; the same plan makes the same class."""

    lesson: str
    students: int
    seed: int

    def draw(self, what: object) -> random.Random:
        """Return what draws one part of the class."""
        return random.Random(f"{self.lesson}, {self.seed}, {what}")


def lay_out(plan: Plan, place: Path) -> None:
    """Write a simulated class, whole or not at all, in place of another simulated one.

    Raises:
        CannotStart: something else lies there, or nbgrader does not release the lesson.
    """
    if _is_there(place) and not _is_simulated(place):
        raise CannotStart(
            f"{place} is there and holds no simulated class: say --into another folder"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".simulated-") as name:
        begun = Path(name, "class")
        begun.mkdir()
        _write_course(Material(plan.lesson), begun)
        _write_class(plan, begun)
        if _is_there(place):
            place.rename(Path(name, "before"))
        begun.rename(place)


def _is_there(place: Path) -> bool:
    return place.is_symlink() or (place.exists() and not _is_empty_folder(place))


def _is_empty_folder(place: Path) -> bool:
    return place.is_dir() and not any(place.iterdir())


def _is_simulated(place: Path) -> bool:
    try:
        expected = json.loads((place / EXPECTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return not place.is_symlink() and isinstance(expected, dict) and MARK in expected


def _write_course(lesson: Material, place: Path) -> None:
    """Configure a course of one lesson, and have nbgrader release it: its gradebook has to know it."""
    config = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    (place / "nbgrader_config.py").write_text(config + CONFIG, encoding="utf-8")
    solved = place / "solutions" / lesson.folder
    solved.mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / lesson.folder / lesson.released.name, solved)
    # nbgrader calls some of its programs by their bare names.
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", lesson.folder],
        cwd=place,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CannotStart(f"nbgrader does not release {lesson.folder}:\n{done.stderr[-2000:]}")


def _write_class(plan: Plan, place: Path) -> None:
    """Write the roster, what everyone hands in, and how everyone has to stand then."""
    draw, lesson = plan.draw("class"), Material(plan.lesson)
    students = draw_students(plan.students, draw)
    kinds = draw_kinds(plan.students, draw)
    draw.shuffle(kinds)
    roster = roster_text(students, plan.lesson, draw)
    (place / "grading" / ROSTER).write_text(roster, encoding="utf-8")
    secret = place / "grading" / "secret"  # so that the same class gets the same questions, too
    secret.write_bytes(hashlib.sha256(repr(plan).encode()).digest())
    secret.chmod(0o600)
    entries = []
    for student, kind in zip(students, kinds, strict=True):
        work = kind(Desk(lesson, student.name, plan.draw(student.id)))
        submitted = place / "grading" / "submitted"
        submitted.mkdir(exist_ok=True)
        _hand_in(plan, submitted, student, work)
        if work.then:
            _hand_in(plan, place / AGAIN, student, work.then, timedelta(days=1))
        entries.append({"id": student.id, "kind": name_of(kind), **_expected(work)})
    _write_expected(plan, place, entries)


def _hand_in(
    plan: Plan, folder: Path, student: Student, work: Work, later: timedelta = timedelta()
) -> None:
    if work.files is None:
        return
    mine = folder / student.id / plan.lesson
    mine.mkdir(parents=True)
    for name, data in work.files.items():
        (mine / name).write_bytes(data)
    minutes = plan.draw(f"{student.id}, time").randrange(5 * 24 * 60)
    time = BEGUN + timedelta(minutes=minutes) + later
    (mine / "timestamp.txt").write_text(f"{time:%Y-%m-%d %H:%M:%S} UTC\n", encoding="utf-8")


def _expected(work: Work) -> dict[str, Any]:
    points = asdict(work.points) if work.points else {"at_least": None, "at_most": None}
    then = {"then": _expected(work.then)} if work.then else {}
    return {"bug": work.bug, "state": work.state, **points, **then}


def _write_expected(plan: Plan, place: Path, entries: list[Mapping[str, Any]]) -> None:
    expected = {MARK: asdict(plan), "students": sorted(entries, key=lambda entry: entry["id"])}
    text = json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
    (place / EXPECTED).write_text(text, encoding="utf-8")
