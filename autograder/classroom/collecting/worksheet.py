"""Read Moodle's grading worksheet: which student a participant's number is, and when they handed in.

"Download grading worksheet" (`mod_assign`, gradingtable.php) writes "Participant 902", the address where
the instructor may see it, and the last change of the submission, to the minute, in the instructor's zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from nbgrader.utils import parse_utc

from autograder.classroom.course import CannotStart
from autograder.classroom.exporting.delimited import BadSheet, Delimited
from autograder.classroom.roster import Student, key

_NUMBER, _TIME = "Identifier", "Last modified (submission)"
_WHO = ("Email address", "ID number", "Username")


@dataclass(frozen=True)
class Participant:
    """A row of the worksheet.

    Attributes:
        is_named: whether the row holds an address or a number by which the class may know them.
        student: id of the only one who has it; None where there is none.
        handed_in: in UTC; None where the row does not tell.
    """

    is_named: bool
    student: str | None
    handed_in: datetime | None


def read_worksheet(
    path: Path, students: Mapping[str, Student], zone: tzinfo | None
) -> dict[str, Participant]:
    """Read the rows of a worksheet, by the participant's number.

    Raises:
        CannotStart: it is no worksheet, or not in English.
    """
    try:
        sheet = Delimited(path.read_bytes(), ",")
    except (OSError, BadSheet) as error:
        raise CannotStart(f"{path.name} cannot be read: {error}") from None
    if _NUMBER not in sheet.header:
        raise CannotStart(
            f"{path.name} has no column {_NUMBER}: Moodle's grading worksheet has, downloaded in English"
        )
    rows = [
        dict(zip(sheet.header, map(str.strip, sheet.row(number)), strict=False))
        for number in range(1, len(sheet))
    ]
    participants = {}
    for row in rows:
        if number := row.get(_NUMBER, "").rpartition(" ")[2]:
            keys = {key(row[name]) for name in _WHO if row.get(name)}
            same = [student.id for student in students.values() if keys & student.named_by()]
            handed_in = _time(path.name, row.get(_TIME, ""), zone)
            participants[number] = Participant(
                bool(keys), same[0] if len(same) == 1 else None, handed_in
            )
    return participants


def _time(file: str, text: str, zone: tzinfo | None) -> datetime | None:
    """Read a time such as "Friday, 20 November 2026, 3:14 PM"; "-" where nothing was handed in."""
    if text in ("", "-"):
        return None
    try:
        return parse_utc(text).replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise CannotStart(f"{file}: {text!r} is not a time in English, under {_TIME}") from None
