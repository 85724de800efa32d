"""What Canvas and Moodle do with a file of grades: the rules of their own importers, in short."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Changes = dict[tuple[str, str], object]
"""The new grade by student and assignment."""


@dataclass
class Canvas:
    """A course in Canvas.

    Attributes:
        students: name, SIS id and login, by Canvas's number.
        assignments: title and points, by Canvas's number.
        scores: by both numbers; "EX" is excused, "N/A" not assigned.
        options: how the instructor's account exports.
    """

    students: Mapping[str, tuple[str, str, str]]
    assignments: Mapping[str, tuple[str, float]]
    scores: Mapping[tuple[str, str], float | str] = field(default_factory=dict)
    bom: bool = False
    separator: str = ","
    comma: bool = False
    manual_posting: bool = False

    def export(self) -> bytes:
        """The gradebook as `lib/gradebook_exporter.rb` of instructure/canvas-lms writes it: numbers
        with two decimals in the user's locale, "EX", the row of points, and the student of Student View
        last."""
        titles = [f"{title} ({key})" for key, (title, _) in self.assignments.items()]
        ids = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
        totals = ["Assignments Current Score", "Final Score"]
        rows = [[*ids, *titles, *totals]]
        if self.manual_posting:
            rows.append([""] * 5 + ["Manual Posting"] * len(titles) + [""] * 2)
        points = [self._number(points) for _, points in self.assignments.values()]
        rows.append(["    Points Possible", *[""] * 4, *points, *["(read only)"] * 2])
        for key, (name, sis, login) in self.students.items():
            cells = (self.scores.get((key, column), "") for column in self.assignments)
            rows.append(
                [name, key, sis, login, "Tue and Wed", *map(self._number, cells), "80.0", ""]
            )
        rows.append(["Student, Test", "9999", "", "8a8f70", "Tue", *[""] * len(titles), "", ""])
        text = io.StringIO()
        csv.writer(text, delimiter=self.separator, lineterminator="\n").writerows(rows)
        return (b"\xef\xbb\xbf" if self.bom else b"") + text.getvalue().encode()

    def _number(self, value: float | str) -> str:
        text = value if isinstance(value, str) else f"{value:.2f}"
        return text.replace(".", ",") if self.comma else text

    def upload(self, data: bytes) -> Changes:
        """Apply a file; return what changes.

        After `lib/gradebook_importer.rb` and `process_gradebook_upload.js` of instructure/canvas-lms:
        `;` if it splits the first three lines evenly; the header begins with Student and ID and has
        Section behind the ids; an assignment is known by the number in brackets, and anything else
        would be a *new* assignment; rows of points, of posting policies and empty ones are no students;
        a student is known by ID, then SIS id, then login, then name, and would else be a *new* one; the
        last comma or point of a number begins its decimals; a cell counts that is another at two
        decimals: EX excuses, and a cell that was emptied is a grade that is taken away.
        """
        lines = data.decode("utf-8-sig").splitlines()
        semicolons = {line.count(";") for line in lines[:3]}
        separator = ";" if len(semicolons) == 1 and semicolons != {0} else ","
        rows = [
            [self._normal(cell) for cell in row]
            for row in csv.reader(lines, delimiter=separator, strict=True)
        ]
        header, *rest = rows
        assert ["Student" in header[0], "ID" in header[1]] == [True, True], "Invalid header row"
        first = header.index("Section") + 1
        wanted = [column for column in range(first, len(header)) if not self._total(header[column])]
        changes: Changes = {}
        for row in rest:
            if "Points Possible" in row[0] or not any(row) or _is_of_policies(row):
                continue
            student = self._student(row)
            for column in wanted:
                found = re.fullmatch(r"(.*)\s\((\d+)\)", header[column])
                key = found[2] if found else ""
                assert key in self.assignments, f"a new assignment: {header[column]}"
                before, after = self.scores.get((student, key), ""), row[column].strip()
                if before != "N/A" and not _is_same(before, after):  # that is: not assigned
                    changes[student, key] = _read(after)
        return changes

    @staticmethod
    def _normal(cell: str) -> str:
        if not re.fullmatch(r"-?[0-9.,]+%?", cell):
            return cell
        *whole, last = re.split("[,.]", cell)
        return f"{''.join(whole)}.{last}" if whole else last

    @staticmethod
    def _total(name: str) -> bool:
        kinds = "Current|Final|Override"
        return re.search(f"({kinds}) (Score|Points|Grade|Status)", name) is not None

    def _student(self, row: list[str]) -> str:
        if row[1] in self.students:
            return row[1]
        for key, (name, sis, login) in self.students.items():
            if (row[2] and row[2] == sis) or (row[3] and row[3] == login) or row[0] == name:
                return key
        assert row[0] == "Student, Test", f"a new student: {row[0]}"
        return "9999"


def _is_of_policies(row: list[str]) -> bool:
    return all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", cell, re.I) for cell in row)


def _is_same(before: float | str, after: str) -> bool:
    if before in ("", "EX") or after in ("", "EX"):
        return before == after
    return f"{before:.2f}" == f"{float(after):.2f}"


def _read(text: str) -> float | str:
    return text if text in ("", "EX") else float(text)


@dataclass
class Moodle:
    """An assignment in Moodle.

    Attributes:
        students: full name, address and ID number, by the number of the participant.
        grades: by that number.
        locked: whose grade Moodle does not change.
        most: the maximum grade.
        decimal: of the user's language.
    """

    students: Mapping[str, tuple[str, str, str]]
    grades: Mapping[str, float] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    most: float = 10.0
    decimal: str = "."
    comments: str = "keep, this"

    COLUMNS = (
        *("Identifier", "Full name", "Email address", "ID number", "Status", "Grade"),
        *("Maximum Grade", "Grade can be changed", "Last modified (submission)"),
        *("Last modified (grade)", "Feedback comments"),
    )

    def worksheet(self) -> bytes:
        """The worksheet as `mod/assign/gradingtable.php` of moodle/moodle writes it, with a byte order
        mark and CRLF, as its writer of CSV does."""
        text = io.StringIO()
        sheet = csv.writer(text, lineterminator="\r\n")
        sheet.writerow(self.COLUMNS)
        for key, (name, address, number) in self.students.items():
            grade = self._number(self.grades[key]) if key in self.grades else ""
            can = "No" if key in self.locked else "Yes"
            ids = (f"Participant {key}", name, address, number, "Submitted for grading - ")
            times = ("Friday, 20 November 2026, 10:00 AM", "-")
            sheet.writerow([*ids, grade, self._number(self.most), can, *times, self.comments])
        return b"\xef\xbb\xbf" + text.getvalue().encode()

    def _number(self, value: float) -> str:
        return f"{value:.2f}".replace(".", self.decimal)

    def upload(self, data: bytes) -> Changes:
        """Apply a worksheet; return what changes.

        After `importgradeslib.php` and `locallib.php` of mod/assign/feedback/offline in moodle/moodle:
        commas; the columns Identifier, Grade and Last modified (grade) must be there; a participant is
        the number behind "Participant "; a grade is read by `unformat_float` in the user's language; it
        is skipped where it is blank, the same, negative, above the maximum or locked; feedback that
        reads otherwise is written.
        """
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        assert {"Identifier", "Grade", "Last modified (grade)"} <= set(rows.fieldnames)
        changes: Changes = {}
        for row in rows:
            key = row["Identifier"][len("Participant ") :]
            assert row["Last modified (grade)"] == "-"
            grade = self._unformat(row["Grade"])
            fits = grade is not None and 0 <= grade <= self.most and key not in self.locked
            if key in self.students and fits and self.grades.get(key) != grade:
                changes[key, "Grade"] = grade
            if row["Feedback comments"] != self.comments:
                changes[key, "Feedback comments"] = row["Feedback comments"]
        return changes

    def _unformat(self, text: str) -> float | None:
        """As PHP: what follows the longest beginning that is a number is dropped in silence."""
        text = text.replace(" ", "").replace(self.decimal, ".")
        if not text:
            return None
        found = re.match(r"-?\d*\.?\d*", text)
        return float(found[0]) if found[0].strip("-.") else 0.0

    def report(self, separator: str = ",") -> bytes:
        """The grader report as `grade/export/txt` of moodle/moodle writes it: "-" is no grade."""
        text = io.StringIO()
        sheet = csv.writer(text, delimiter=separator, lineterminator="\n")
        ids = ("First name", "Last name", "ID number", "Institution", "Email address")
        items = ("Assignment: 00 · Start here (Real)", "Quiz: 1 (Real)", "Course total (Real)")
        sheet.writerow([*ids, *items, "Last downloaded from this course"])
        for key, (name, address, number) in self.students.items():
            first, _, last = name.partition(" ")
            grade = self._number(self.grades[key]) if key in self.grades else "-"
            cells = (first, last, number, "", address, grade, "-", grade, "1795170000")
            sheet.writerow(cells)
        return text.getvalue().encode()

    def upload_report(self, data: bytes, separator: str = ",") -> Changes:
        """Apply a grader report, mapped by address onto the assignment; return what changes.

        After `grade/import/csv/classes/load_data.php` of moodle/moodle: "" and "-" are no grade; what
        is no number, or an address that nobody has, ends the import with nothing done.
        """
        rows = csv.DictReader(io.StringIO(data.decode()), delimiter=separator, strict=True)
        by_address = {address: key for key, (_, address, _) in self.students.items()}
        changes: Changes = {}
        for row in rows:
            key = by_address[row["Email address"]]
            text = row["Assignment: 00 · Start here (Real)"].strip()
            grade = None if text in ("", "-") else float(text.replace(self.decimal, "."))
            if self.grades.get(key) != grade:
                changes[key, "Grade"] = grade
        return changes
