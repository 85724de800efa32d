"""Recognise the sheets that Canvas and Moodle export, and what their columns and rows are.

Canvas reads its own gradebook by `lib/gradebook_importer.rb`, Moodle the worksheet of an assignment by
`mod/assign/feedback/offline` and the report of all grades by `grade/import/csv`. What they require of a
file, and what they leave alone, is what is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autograder.classroom.exporting.delimited import SEPARATORS, BadSheet, Delimited
from autograder.classroom.wording import one_line

CANVAS, WORKSHEET, REPORT = "Canvas's gradebook", "Moodle's worksheet", "Moodle's grader report"
EXCUSED = ("ex", "excused", "n/a")
"""What stands in a cell of Canvas that takes no points: excused, or not assigned to that student."""
_CANVAS_IDS = ("SIS User ID", "SIS Login ID", "Integration ID")
_CANVAS_NO_ROW = re.compile(r"\s*(muted|manual posting.*)?\s*", re.IGNORECASE)
_CANVAS_ASSIGNMENT = re.compile(r"(.*)\s\((\d+)\)", re.DOTALL)
_CANVAS_TOTAL = re.compile("(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")
"""In whatever name: Canvas passes over such a column in silence."""
_WORKSHEET = ("Identifier", "Grade", "Last modified (grade)")
_MOODLE_IDS = ("ID number", "Email address", "Username")
_REPORT_NAMES = ("First name", "Last name", "Surname")
_REPORT_OTHERS = (*_REPORT_NAMES, *_MOODLE_IDS, "Institution", "Department")
_REPORT_NO_POINTS = re.compile(
    r".*\((Percentage|Letter|Feedback)\)|(Course|Category) total.*|Last downloaded.*"
)
_NUMBER = re.compile(r"-?[\d.,]*\d")


@dataclass(frozen=True)
class Layout:
    """What the columns and rows of a sheet are.

    Attributes:
        platform: whose sheet it is.
        sheet: its cells.
        rows: of the students.
        names: the columns with the student's name.
        ids: the columns that identify a student, by the id of a person or an address.
        platform_id: the column with the platform's own number of a student, or None.
        columns: those that can be filled, with their names.
        points_row: the row that says what each column is worth, or None.
        points_column: the column that says it for each student, or None.
        can_change: the column that says whether Moodle takes a grade, or None.
    """

    platform: str
    sheet: Delimited
    rows: tuple[int, ...]
    names: tuple[int, ...]
    ids: tuple[int, ...]
    platform_id: int | None
    columns: dict[int, str]
    points_row: int | None = None
    points_column: int | None = None
    can_change: int | None = None

    def name(self, row: int) -> str:
        """Return what the sheet calls the student of a row."""
        return " ".join(filter(None, (self.sheet.value(row, column) for column in self.names)))

    def most(self, column: int) -> float | None:
        """Return what a column is worth at most; None where the sheet does not say.

        Raises:
            BadSheet: it says several things.
        """
        cells = self._cells_of_most(column)
        found = {cell: read_number(cell) for cell in cells if cell}
        if len(set(found.values())) > 1 or None in found.values():
            raise BadSheet(f"it gives {' and '.join(map(repr, found))} as the most points")
        return next(iter(found.values()), None)

    def writes_comma(self, column: int) -> bool:
        """Tell whether the sheet writes decimals with a comma."""
        cells = [self.sheet.value(row, column) for row in self.rows]
        return any(re.fullmatch(r"\d+,\d+", cell) for cell in cells + self._cells_of_most(column))

    def _cells_of_most(self, column: int) -> list[str]:
        if self.points_row is not None:
            return [self.sheet.value(self.points_row, column)]
        if self.points_column is not None:
            return [self.sheet.value(row, self.points_column) for row in self.rows]
        return []


def read_number(text: str) -> float | None:
    """Read a number as Canvas does: its last comma or point begins the decimals."""
    if not _NUMBER.fullmatch(text):
        return None
    *whole, last = re.split("[.,]", text)
    return float(f"{''.join(whole)}.{last}" if whole else last)


def read_layout(data: bytes) -> Layout:
    """Recognise a sheet by the names of its columns.

    Raises:
        BadSheet: neither Canvas nor Moodle wrote it, or it lacks a column without which it cannot be
            imported.
    """
    for separator in SEPARATORS:
        sheet = Delimited(data, separator)
        for recognise in (_canvas, _worksheet, _report):
            if len(sheet) and (layout := recognise(sheet, sheet.header)):
                return layout
    expected = f"Student, ID, …, Section; {', '.join(_WORKSHEET)}; or First name, …, Email address"
    has = one_line(", ".join(Delimited(data, ",").header[:8])) or "nothing"
    raise BadSheet(
        "neither Canvas nor Moodle (in English) exports such a first line. "
        f"It would hold {expected}; it holds {has}"
    )


def _canvas(sheet: Delimited, header: list[str]) -> Layout | None:
    if header[:2] == ["Student", "ID"]:
        names, number = (0,), 1
    elif header[:3] == ["LastName", "FirstName", "ID"]:
        names, number = (0, 1), 2
    else:
        return None
    if "Section" not in header:
        raise BadSheet("it lacks the column Section, without which Canvas takes no sheet")
    rows, points_row = [], None
    for row in range(1, len(sheet)):
        values = sheet.row(row)
        if "Points Possible" in values[0]:
            points_row = row
        elif not all(map(_CANVAS_NO_ROW.fullmatch, values)):
            rows.append(row)
    columns = {
        column: name
        for column, name in enumerate(header)
        if _CANVAS_ASSIGNMENT.fullmatch(name)
        and not _CANVAS_TOTAL.search(name)
        and not (points_row and "read only" in sheet.value(points_row, column))
    }
    people = [row for row in rows if not _is_test_student(sheet, row, names)]
    ids = tuple(header.index(name) for name in _CANVAS_IDS if name in header)
    return Layout(CANVAS, sheet, tuple(people), names, ids, number, columns, points_row=points_row)


def _is_test_student(sheet: Delimited, row: int, names: tuple[int, ...]) -> bool:
    """Tell whether a row is that of Canvas's Student View, which is nobody."""
    name = [sheet.value(row, column) for column in names]
    return name in (["Student, Test"], ["Student", "Test"])


def _worksheet(sheet: Delimited, header: list[str]) -> Layout | None:
    if "Identifier" not in header:
        return None
    if lacking := [name for name in _WORKSHEET if name not in header]:
        raise BadSheet(f"it lacks the column {lacking[0]}, without which Moodle takes no worksheet")
    if "Scale" in header:
        raise BadSheet("the assignment is graded by a scale of words: let it be graded by points")
    ids = _moodle_ids(header)
    if not ids:
        has_none = f"it has no column {' or '.join(_MOODLE_IDS)}, and names alone are not matched"
        raise BadSheet(f"{has_none}: let Moodle show one, or use its grader report")
    names = tuple(n for n, name in enumerate(header) if name == "Full name")
    find = {name: n for n, name in enumerate(header)}.get
    grade = find("Grade")
    return Layout(
        WORKSHEET,
        sheet,
        tuple(_rows_with_text(sheet)),
        names,
        ids,
        None,  # the number of a participant is another one in every assignment
        {grade: "Grade"},
        points_column=find("Maximum Grade"),
        can_change=find("Grade can be changed"),
    )


def _report(sheet: Delimited, header: list[str]) -> Layout | None:
    names = tuple(n for n, name in enumerate(header) if name in _REPORT_NAMES)
    ids = _moodle_ids(header)
    if not names or not ids:
        return None
    columns = {
        n: name
        for n, name in enumerate(header)
        if name and name not in _REPORT_OTHERS and not _REPORT_NO_POINTS.fullmatch(name)
    }
    return Layout(REPORT, sheet, tuple(_rows_with_text(sheet)), names, ids, None, columns)


def _moodle_ids(header: list[str]) -> tuple[int, ...]:
    return tuple(n for n, name in enumerate(header) if name in _MOODLE_IDS)


def _rows_with_text(sheet: Delimited) -> Iterator[int]:
    return (row for row in range(1, len(sheet)) if any(map(str.strip, sheet.row(row))))
