"""Points go into the sheets of Canvas and Moodle, and nothing else in them changes.

`platforms` applies the rules of their own importers to the file that is written.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE
from platforms import Canvas, Moodle

from autograder.classroom.exporting.delimited import BadSheet, Delimited
from autograder.classroom.exporting.fill import Filling, choose_column, fill
from autograder.classroom.exporting.sheets import Layout, read_layout
from autograder.classroom.roster import Student
from autograder.classroom.standing import Standing, State

ADA = Student("ada", "Ada", "Lovelace", "ada@example.edu", "1815")
LEE = Student("s16", "Robert", "Lee, Jr.", "Lee@Example.edu", "1816")
WEI = Student("wei", "Wei", "Zhang", "wei@example.edu")
BAD = Student("bad", "Bad", "Wolf", "bad@example.edu")
NONE = Student("none", "No", "Body", "none@example.edu")
TABLE = [
    Standing(ADA, State.GRADED, "", 10, points=9.5, penalty=1.125),
    Standing(LEE, State.GRADED, "", 10, points=7),
    Standing(WEI, State.UNTOUCHED, "", 10, points=0),
    Standing(BAD, State.UNGRADABLE, "no notebook", 10),
    Standing(NONE, State.MISSING, "nothing was handed in", 10),
]
OF_CANVAS = {
    "1815": ("Lovelace, Ada", "x15", "alovelace"),
    "2016": ("Lee, Jr., Robert", "S16", "rlee"),
    "2017": ("=Zhang, Wei", "x17", "WEI@example.edu"),
    "2018": ("Wolf, Bad", "bad", ""),
    "2019": ("Body, No", "", "none"),
}
ASSIGNMENTS = {
    "501": ("Lesson 00", 10.0),
    "502": ("Lesson 10", 10.0),
    "503": ("Survey, week 1", 5.0),
}
OF_MOODLE = {
    "901": ("Ada Lovelace", "ada@example.edu", ""),
    "902": ("Robert Lee, Jr.", "lee@example.edu", "s16"),
    "903": ("Wei Zhang", "WEI@example.edu", "77"),
    "904": ("Bad Wolf", "bad@example.edu", ""),
    "905": ("No Body", "none@example.edu", ""),
}


@pytest.fixture
def released(tmp_path) -> Path:
    """A lesson's notebook; of it, only the name and the title count here."""
    file = tmp_path / "lessons" / "00-start" / "start.ipynb"
    file.parent.mkdir(parents=True)
    cells = [{"cell_type": "markdown", "source": ["# 00 · Start here\n", "\n", "Hello."]}]
    file.write_text(json.dumps({"cells": cells}))
    return file


def filled(
    data: bytes, released: Path, table=TABLE, column="", scale=1.0
) -> tuple[bytes, Filling, Layout]:
    layout = read_layout(data)
    number = choose_column(layout, released, column)
    decimal = "," if layout.writes_comma(number) else "."
    result = fill(layout, number, table, scale, decimal)
    return layout.sheet.data(), result, layout


def changed_cells(before: bytes, after: bytes, separator: str) -> int:
    """Count the cells that differ; rows, columns and ends of lines must not."""
    old, new = (text.decode("utf-8").splitlines(keepends=True) for text in (before, after))
    assert len(old) == len(new)
    rows = [
        (Delimited(a.encode(), separator), Delimited(b.encode(), separator))
        for a, b in zip(old, new, strict=True)
    ]
    return sum(x != y for a, b in rows for x, y in zip(a.row(0), b.row(0), strict=True))


@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize(("separator", "comma"), [(",", False), (",", True), (";", True)])
@pytest.mark.parametrize("manual_posting", [False, True])
def test_canvas_takes_the_points_and_changes_nothing_else(
    released, bom, separator, comma, manual_posting
):
    scores = {("1815", "501"): 3.0, ("2016", "503"): 4.5, ("2018", "501"): 2.0}
    canvas = Canvas(OF_CANVAS, ASSIGNMENTS, scores, bom, separator, comma, manual_posting)
    sheet = canvas.export()
    assert canvas.upload(sheet) == {}
    data, result, _ = filled(sheet, released)
    assert canvas.upload(data) == {
        ("1815", "501"): 8.375,
        ("2016", "501"): 7.0,
        ("2017", "501"): 0.0,
    }
    assert result.filled == ["ada", "s16", "wei"]
    assert (result.refused, result.absent) == ([], [])
    assert changed_cells(sheet, data, separator) == 3
    assert data.startswith(b"\xef\xbb\xbf") == bom


def test_an_emptied_cell_would_take_a_grade_away_in_canvas_so_none_is(released):
    canvas = Canvas(OF_CANVAS, ASSIGNMENTS, {("2018", "501"): 2.0})
    emptied = canvas.export().replace(b"bad,,Tue and Wed,2.00", b"bad,,Tue and Wed,")
    assert canvas.upload(emptied) == {("2018", "501"): ""}
    data, result, _ = filled(canvas.export(), released)
    assert ("2018", "501") not in canvas.upload(data)
    assert "row 6, Wolf, Bad, bad: ungradable; '2.00' stays in its cell" in result.left


@pytest.mark.parametrize("mark", ["EX", "N/A"])
def test_who_is_excused_or_not_assigned_stays_so(released, mark):
    canvas = Canvas(OF_CANVAS, ASSIGNMENTS, {("1815", "501"): mark})
    data, result, _ = filled(canvas.export(), released)
    assert ("1815", "501") not in canvas.upload(data)
    assert result.left[0] == f"row 3, Lovelace, Ada, ada: '{mark}' stays, not 8.375 points"
    assert "ada" not in result.filled


def test_first_and_last_names_may_stand_in_two_columns(released):
    rows = [
        "LastName,FirstName,ID,SIS Login ID,Section,Lesson 00 (501)",
        "    Points Possible,,,,,10.00",
        "Lovelace,Ada,1815,alovelace,Tue,",
        "Student,Test,9999,8a,Tue,",
    ]
    data, result, _ = filled("\n".join(rows).encode(), released)
    assert data.decode().splitlines()[2] == "Lovelace,Ada,1815,alovelace,Tue,8.375"
    assert result.refused == []


@pytest.mark.parametrize("decimal", [".", ","])
def test_moodle_takes_the_points_and_changes_nothing_else(released, decimal):
    moodle = Moodle(OF_MOODLE, {"904": 3.0, "901": 8.0}, decimal=decimal)
    sheet = moodle.worksheet()
    assert moodle.upload(sheet) == {}
    data, result, _ = filled(sheet, released)
    expected = {("901", "Grade"): 8.375, ("902", "Grade"): 7.0, ("903", "Grade"): 0.0}
    assert moodle.upload(data) == expected
    assert result.refused == []
    assert changed_cells(sheet, data, ",") == 3
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\r\n") == data.count(b"\n") == 6


def test_in_another_language_a_point_would_lose_the_decimals(released):
    """Why the sign before the decimals is read from the sheet: Moodle drops the rest in silence."""
    moodle = Moodle(OF_MOODLE, decimal=".")
    data, _, _ = filled(moodle.worksheet(), released)
    assert moodle.upload(data.replace(b"8.375", b'"8,375"'))["901", "Grade"] == 8.0


def test_a_grade_that_moodle_does_not_change_is_refused(released):
    _, result, _ = filled(Moodle(OF_MOODLE, locked=("901",)).worksheet(), released)
    assert result.refused == [
        "row 2, Ada Lovelace, ada: the sheet says that the grade cannot be changed"
    ]
    assert result.filled == ["s16", "wei"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_moodles_grader_report_takes_the_points(released, separator, decimal):
    moodle = Moodle(OF_MOODLE, {"901": 3.5}, decimal=decimal)
    sheet = moodle.report(separator)
    assert moodle.upload_report(sheet, separator) == {}
    data, _, layout = filled(sheet, released)
    expected = {("901", "Grade"): 8.375, ("902", "Grade"): 7.0, ("903", "Grade"): 0.0}
    assert moodle.upload_report(data, separator) == expected
    assert layout.most(choose_column(layout, released)) is None  # it must be said


def test_points_may_be_scaled_and_keep_five_decimals(released):
    table = [Standing(ADA, State.GRADED, "", 9, points=1)]
    canvas = Canvas({"1815": OF_CANVAS["1815"]}, {"501": ("Lesson 00", 100.0)})
    data, _, _ = filled(canvas.export(), released, table, scale=100 / 9)
    assert b",11.11111," in data


# --- who is who ------------------------------------------------------------------------------------


def test_nobody_is_matched_by_name(released):
    canvas = Canvas({"7": ("Lovelace, Ada", "x", "y")}, ASSIGNMENTS)
    _, result, _ = filled(canvas.export(), released)
    assert result.refused == ["row 3, Lovelace, Ada is nobody of the class"]
    assert [standing.student.id for standing in result.absent] == [s.student.id for s in TABLE]


def test_a_row_that_could_be_two_students_is_nobodys(released):
    canvas = Canvas({"1815": ("Lovelace, Ada", "s16", "")}, ASSIGNMENTS)
    data, result, _ = filled(canvas.export(), released)
    assert result.refused == ["row 3, Lovelace, Ada could be ada or s16"]
    assert data == canvas.export()


def test_two_rows_that_could_be_one_student_are_nobodys(released):
    both = {"1815": ("Lovelace, Ada", "", ""), "7": ("Lovelace, A.", "", "ada@example.edu")}
    data, result, _ = filled(Canvas(both, ASSIGNMENTS).export(), released)
    assert len(result.refused) == 2
    assert result.refused[0].endswith("row 4, Lovelace, A. could be the same student")
    assert data == Canvas(both, ASSIGNMENTS).export()


def test_canvas_own_number_is_no_id_of_another_platform(released):
    """Canvas's 16 is somebody else than the student whose folder is called 16."""
    table = [Standing(Student("16"), State.GRADED, "", 10, points=1)]
    canvas = Canvas({"16": ("Other, One", "", "")}, ASSIGNMENTS)
    _, result, _ = filled(canvas.export(), released, table)
    assert result.refused == ["row 3, Other, One is nobody of the class"]


# --- which column ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "title", ["Lesson 0", "lesson 00: hi", "00-start", "Week 2: Start Here!", "Start (again)"]
)
def test_the_lessons_column_is_found_by_name_number_or_title(released, title):
    canvas = Canvas(OF_CANVAS, {"500": ("Other", 10.0), "501": (title, 10.0)})
    layout = read_layout(canvas.export())
    assert layout.columns[choose_column(layout, released)] == f"{title} (501)"


@pytest.mark.parametrize(
    ("titles", "why"),
    [
        (["Lesson 10", "Restart"], "no column"),
        (["Lesson 0", "Start here"], "several columns"),
        ([], "none that takes points"),
    ],
)
def test_where_no_or_several_columns_could_be_meant_all_are_listed(released, titles, why):
    assignments = {str(n): (title, 10.0) for n, title in enumerate(titles)}
    layout = read_layout(Canvas(OF_CANVAS, assignments).export())
    with pytest.raises(BadSheet, match=why) as found:
        choose_column(layout, released)
    assert all(repr(f"{title} ({n})") in str(found.value) for n, title in enumerate(titles))


@pytest.mark.parametrize("named", ["503", "Survey, week 1", "Survey, week 1 (503)"])
def test_a_column_can_be_named(released, named):
    layout = read_layout(Canvas(OF_CANVAS, ASSIGNMENTS).export())
    assert layout.columns[choose_column(layout, released, named)] == "Survey, week 1 (503)"


def test_a_column_that_canvas_computes_cannot_be_filled(released):
    layout = read_layout(Canvas(OF_CANVAS, ASSIGNMENTS).export())
    with pytest.raises(BadSheet, match="no column called 'Final Score'"):
        choose_column(layout, released, "Final Score")
    said = b"Student,ID,Section,Lesson 00 (501)\nPoints Possible,,,(read only)\nA,1,T,\n"
    assert read_layout(said).columns == {}


def test_a_column_that_canvas_passes_over_cannot_be_filled(released):
    canvas = Canvas(OF_CANVAS, {"501": ("Lesson 00: Final Score", 10.0)})
    assert canvas.upload(canvas.export().replace(b",80.0", b"9,80.0")) == {}
    assert read_layout(canvas.export()).columns == {}


# --- what is no such sheet -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it holds nothing"),
        (b"name,points\nada,3\n", "it holds name, points"),
        ("Student,ID,Section\nÄda,1,T".encode("latin-1"), "not UTF-8"),
        (b'Student,ID,Section\nAda "the",1,"T"x\n', "row 2 has a quotation mark"),
        (b"Student,ID,Lesson 0 (1)\n", "lacks the column Section"),
        (b"Identifier,Email address,Grade\n", r"lacks the column Last modified \(grade\)"),
        (b"Identifier,Full name,Grade,Last modified (grade)\n", "names alone are not matched"),
        (
            b"Identifier,Email address,Grade,Scale,Last modified (grade)\n",
            "graded by a scale of words",
        ),
    ],
)
def test_another_sheet_is_refused_and_the_reason_said(data, why):
    with pytest.raises(BadSheet, match=why):
        read_layout(data)


def test_a_sheet_that_says_two_maxima_is_refused(released):
    sheet = Moodle(OF_MOODLE).worksheet().replace(b"10.00", b"20.00", 1)
    layout = read_layout(sheet)
    with pytest.raises(BadSheet, match=r"'20\.00' and '10\.00'"):
        layout.most(choose_column(layout, released))


@pytest.mark.parametrize(
    "text",
    ["", "a", "a,", ",\n\n,", '"x\r\ny",""""\r\n', "\n", 'a"b,c\r', "é,\U0001f600,\x00\n", '"a,b"'],
)
def test_what_is_not_changed_stays_byte_by_byte(text):
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode()):
        sheet = Delimited(data, ",")
        assert sheet.data() == data
        for row in range(len(sheet)):  # nor does a value that is what it was
            for column, value in enumerate(sheet.row(row)):
                sheet.set(row, column, value)
        assert sheet.data() == data


def test_a_large_sheet_takes_no_more_than_its_size():
    """Quotes that never close are told at once, not tried from every place."""
    program = (
        "from autograder.classroom.exporting.delimited import *\n"
        "try: Delimited(b'\"' + b'a,\\n\"\"' * 10**6, ',')\n"
        "except BadSheet: print('refused')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "refused\n", done.stderr
