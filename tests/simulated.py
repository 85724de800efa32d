"""Compare how a simulated class stands with what is known of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autograder.classroom.course import open_course
from autograder.classroom.simulation.folder import EXPECTED, MARK
from autograder.classroom.standing import Standing, standings


def read_expected(place: Path) -> dict[str, dict[str, Any]]:
    """What each student has to get, by id."""
    said = json.loads((place / EXPECTED).read_text(encoding="utf-8"))
    return {student["id"]: student for student in said["students"]}


def standings_in(place: Path) -> list[Standing]:
    """How the class stands, by what nbgrader wrote there."""
    lesson = json.loads((place / EXPECTED).read_text(encoding="utf-8"))[MARK]["lesson"]
    with contextlib.chdir(place):
        found = open_course().lesson(lesson)
        with contextlib.closing(found.desk()) as desk:
            return standings(found, desk)


def differences(expected: Mapping[str, Mapping[str, Any]], table: Iterable[Standing]) -> list[str]:
    """Whatever is otherwise than it has to be, one line each."""
    found = []
    stand = {standing.student.id: standing for standing in table}
    for name in sorted({*expected, *stand}):
        if name not in expected or name not in stand:
            found.append(f"{name}: only in {'expected' if name in expected else 'standings'}")
        elif not _holds(said := expected[name], stand[name]):
            found.append(
                f"{name}: {stand[name].state}, {stand[name].points} points; expected: {said}"
            )
    return found


def _holds(said: Mapping[str, Any], standing: Standing) -> bool:
    if standing.state != said["state"]:
        return False
    if standing.points is None or said["at_least"] is None:
        return standing.points is said["at_least"] is None
    return said["at_least"] <= standing.points <= said["at_most"]


def after_handing_in_again(
    expected: Mapping[str, Mapping[str, Any]],
) -> dict[str, Mapping[str, Any]]:
    """What each student has to get when the second versions were graded."""
    return {name: said.get("then", said) for name, said in expected.items()}
