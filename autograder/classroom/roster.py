"""Read the list of the class: `roster.csv`, one student per line.

    id,first_name,last_name,email,lms_user_id,section,team,extension,extension 03-kv-cache
    ada,Ada,Lovelace,ada@example.edu,1815,Tuesday,,,2

Only `id` is required: it is the name of the student's folder under grading/submitted. What one member
of a `team` hands in counts for all of them. `extension` extends the due date of every lesson, `extension
LESSON` that of one: by a number of days, or to a day and time.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path

EXTENSION = "extension"
COLUMNS = ("id", "first_name", "last_name", "email", "lms_user_id", "section", "team")
_IDS = re.compile(r"[^/\\\x00-\x1f]+")


@dataclass(frozen=True)
class Student:
    """A student of the class.

    Attributes:
        id: nbgrader's id, which is the name of the student's folder.
        lms_user_id: the id in the learning platform.
        section: group, tutorial or room; "" if the roster has none.
        team: of those who hand in together; "" for who hands in alone.
        extensions: by lesson, "" for all lessons: a number of days, or the new due date, in UTC if it
            has no zone.
    """

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""
    section: str = ""
    team: str = ""
    extensions: Mapping[str, float | datetime] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The first and last name, or the id if neither is known."""
        return f"{self.first_name} {self.last_name}".strip() or self.id

    def named_by(self) -> set[str]:
        """Return the `key` of each id and address of this student."""
        return {key(text) for text in (self.id, self.lms_user_id, self.email) if text}

    def extension(self, lesson: str) -> float | datetime | None:
        """Return the extension for a lesson, from its own column or else from that for all lessons."""
        return self.extensions.get(lesson, self.extensions.get(""))


class BadRoster(ValueError):
    """The roster cannot be used; the message names the line and what would be right."""


def read_roster(path: Path) -> list[Student]:
    """Read a roster, in its order.

    Raises:
        BadRoster: something in it is ambiguous or invalid.
        OSError: it cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRoster(f"{path.name} is not UTF-8 ({error.reason}): save it as UTF-8") from None
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=True)
    try:
        columns = [name.strip() for name in rows.fieldnames or ()]
        _check_columns(path.name, columns)
        rows.fieldnames = columns
        students = [
            _student(f"{path.name}, line {rows.line_num}", row)
            for row in rows
            if any(filter(None, row.values()))
        ]
    except csv.Error as error:
        raise BadRoster(f"{path.name}, line {rows.line_num}: {error}") from None
    _check_for_twins(path.name, students)
    return students


def _check_columns(file: str, columns: list[str]) -> None:
    if "id" not in columns:
        has = ", ".join(columns) or "nothing"
        raise BadRoster(f"{file} has no column id in its first line; it has {has}")
    for name in columns:
        if name not in COLUMNS and name.partition(" ")[0] != EXTENSION:
            known = ", ".join((*COLUMNS, EXTENSION))
            raise BadRoster(f"{file}: no column is called {name!r}; known are {known} (LESSON)")
        if columns.count(name) > 1:
            raise BadRoster(f"{file} has the column {name!r} twice")


def _student(where: str, row: Mapping[str, str]) -> Student:
    if "" in row:
        raise BadRoster(f"{where} has more values than columns: put values with a comma in quotes")
    values = {name: (value or "").strip() for name, value in row.items()}
    if not _IDS.fullmatch(values["id"]) or values["id"] in (".", ".."):
        raise BadRoster(f"{where}: {values['id']!r} is not an id, which is a folder's name")
    extensions = {
        name.removeprefix(EXTENSION).strip(): _extension(f"{where}, {name}", value)
        for name, value in values.items()
        if name.startswith(EXTENSION) and value
    }
    return Student(**{name: values.get(name, "") for name in COLUMNS}, extensions=extensions)


def _extension(where: str, value: str) -> float | datetime:
    try:
        days = float(value)
    except ValueError:
        with suppress(ValueError):  # a day alone is granted to its end
            return datetime.combine(date.fromisoformat(value) + timedelta(days=1), time())
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            words = "a number of days, such as 2 or 0.5, nor a time such as 2026-12-01 18:00"
            raise BadRoster(f"{where}: {value!r} is neither {words}") from None
    if not 0 <= days < 10_000:
        raise BadRoster(f"{where}: {value} days; an extension is 0 days or more")
    return days


def _check_for_twins(file: str, students: list[Student]) -> None:
    seen: set[str] = set()
    for student in students:
        if student.id in seen:
            raise BadRoster(f"{file} has the id {student.id!r} twice; each student has one line")
        seen.add(student.id)


def key(text: str) -> str:
    """Normalise the case, the spaces and the accents of an id, an address or a label."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(text.split())
