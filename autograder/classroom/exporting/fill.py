"""Fill the points of a lesson into the sheet that a learning platform exported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autograder.assignment import text_of
from autograder.classroom.exporting.delimited import BadSheet
from autograder.classroom.exporting.sheets import EXCUSED, WORKSHEET, Layout, read_number
from autograder.classroom.exporting.table_cells import number
from autograder.classroom.roster import Student, key
from autograder.classroom.standing import Standing
from autograder.classroom.wording import one_line


@dataclass
class Filling:
    """The result of filling a sheet.

    Attributes:
        filled: the ids of the students whose points are in the sheet now.
        refused: the rows that cannot be filled, one line each; the sheet should not be used then.
        left: the cells that keep their values, one line each.
        absent: the students of the class who are not in the sheet.
    """

    filled: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    absent: list[Standing] = field(default_factory=list)


def choose_column(layout: Layout, released: Path, called: str = "") -> int:
    """Choose the column of a lesson.

    Args:
        released: the lesson's notebook, in the lesson's folder.
        called: the column's name, with or without Canvas's number of it; or that number alone.

    Raises:
        BadSheet: no column fits, or several do; the message lists them.
    """
    if called:
        matching = [n for n, name in layout.columns.items() if called in _names_of_column(name)]
        sought = f"called {called!r}"
    elif layout.platform == WORKSHEET:  # of one assignment
        return next(iter(layout.columns))
    else:
        names = _names_of_lesson(released)
        matching = [n for n, name in layout.columns.items() if any(_holds(name, t) for t in names)]
        sought = f"whose name holds {', '.join(map(repr, names))}"
    if len(matching) == 1:
        return matching[0]
    several = [layout.columns[n] for n in matching or layout.columns]
    listed = ", ".join(one_line(repr(name)) for name in several) or "none that takes points"
    what = "several columns" if matching else "no column"
    raise BadSheet(f"it has {what} {sought}: {listed}. Name one with --column")


def _names_of_column(name: str) -> tuple[str, ...]:
    title, _, number_of_it = name.rpartition(" (")
    return name, title, number_of_it.removesuffix(")")


def _names_of_lesson(released: Path) -> list[str]:
    """List by what a lesson may be called: its folder, module, title and number."""
    folder, module = released.parent.name, released.stem
    cells = json.loads(released.read_text(encoding="utf-8"))["cells"]
    first = text_of(cells[0]["source"]).partition("\n")[0] if cells else ""
    title = first.removeprefix("#").rpartition("·")[2].strip()
    of_folder = folder.partition("-")[0]
    names = [folder, folder.partition("-")[2], module.replace("_", " "), title]
    if of_folder.isdecimal():
        names.append(f"lesson {int(of_folder)}")
    return list(dict.fromkeys(filter(None, names)))


def _holds(column: str, name: str) -> bool:
    """Tell whether a column's name holds that of a lesson, as whole words; "Lesson 03" is "lesson 3"."""
    words, sought = (
        " ".join(re.sub(r"\b0+(?=\d)", "", " ".join(re.findall(r"\w+", text.casefold()))).split())
        for text in (column, name.replace("-", " "))
    )
    return f" {sought} " in f" {words} "


def fill(
    layout: Layout, column: int, table: Sequence[Standing], scale: float, decimal: str
) -> Filling:
    """Write the score of everyone who has one into the sheet; every other cell stays as it is.

    Args:
        column: the column to fill.
        table: the standing of everyone.
        scale: the factor for the points.
        decimal: the decimal separator.
    """
    result = Filling()
    by_id = {standing.student.id: standing for standing in table}
    found = _find(layout, [standing.student for standing in table])
    rows = _sort_out(layout, found, result)
    for row, student in rows.items():
        standing = by_id[student]
        who = f"{_who(layout, row)}, {one_line(student)}"
        _fill_one(layout, row, column, standing, scale, decimal, who, result)
    somewhere = set().union(*found.values())
    result.absent += [standing for standing in table if standing.student.id not in somewhere]
    return result


def _fill_one(
    layout: Layout,
    row: int,
    column: int,
    standing: Standing,
    scale: float,
    decimal: str,
    who: str,
    result: Filling,
) -> None:
    before = layout.sheet.value(row, column)
    if standing.score is None:
        stays = f"; {one_line(before)!r} stays in its cell" if before not in ("", "-") else ""
        result.left.append(f"{who}: {standing.state}{stays}")
        return
    if before.casefold() in EXCUSED:
        result.left.append(f"{who}: {before!r} stays, not {number(standing.score)} points")
        return
    if (
        layout.can_change is not None
        and layout.sheet.value(row, layout.can_change).casefold() == "no"
    ):
        result.refused.append(f"{who}: the sheet says that the grade cannot be changed")
        return
    points = number(standing.score * scale)
    if read_number(before) != float(points):
        layout.sheet.set(row, column, points.replace(".", decimal))
    result.filled.append(standing.student.id)


def _find(layout: Layout, students: Sequence[Student]) -> dict[int, set[str]]:
    """Return the students that each row could be: by id, address or the platform's number, never by
    name."""
    people = _by_key(students, "id", "email", "lms_user_id")
    numbers = _by_key(students, "lms_user_id")
    candidates: dict[int, set[str]] = {}
    for row in layout.rows:
        named = (key(layout.sheet.value(row, column)) for column in layout.ids)
        candidates[row] = set().union(*(people.get(one, ()) for one in named))
        if layout.platform_id is not None:  # no number that could be a student's elsewhere
            candidates[row] |= numbers.get(key(layout.sheet.value(row, layout.platform_id)), set())
    return candidates


def _sort_out(
    layout: Layout, candidates: Mapping[int, set[str]], result: Filling
) -> dict[int, str]:
    """Return the rows that match exactly one student, and no other row does; refuse the others."""
    rows: dict[int, str] = {}
    rows_of: dict[str, list[int]] = {}
    for row, ids in candidates.items():
        for student in ids:
            rows_of.setdefault(student, []).append(row)
    for row, ids in candidates.items():
        twins = [other for student in sorted(ids) for other in rows_of[student] if other != row]
        if len(ids) == 1 and not twins:
            rows[row] = next(iter(ids))
        elif len(ids) == 1:
            named = " and ".join(_who(layout, twin) for twin in twins)
            result.refused.append(f"{_who(layout, row)}: {named} could be the same student")
        elif ids:
            names = " or ".join(map(one_line, sorted(ids)))
            result.refused.append(f"{_who(layout, row)} could be {names}")
        else:
            result.refused.append(f"{_who(layout, row)} is nobody of the class")
    return rows


def _by_key(students: Sequence[Student], *names: str) -> Mapping[str, set[str]]:
    ids: dict[str, set[str]] = {}
    for student in students:
        for name in names:
            if text := key(getattr(student, name)):
                ids.setdefault(text, set()).add(student.id)
    return ids


def _who(layout: Layout, row: int) -> str:
    return f"row {row + 1}, {one_line(layout.name(row))}"
