"""`autograder export` in a class: points come out, a state each, and no grade is never a zero."""

import csv
import io
import json
import mailbox
import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from patience import PATIENCE
from platforms import Canvas
from submissions import solved, submission

from autograder.__main__ import main
from autograder.lessons import find
from lessons import COURSE, ROOT

pytestmark = needs_bubblewrap

LESSON = COURSE.read("00-start")
ROSTER = """\
id,first_name,last_name,email,lms_user_id,section
ada,Ada,Lovelace,ada@example.edu,1815,Tuesday
bad,Bad,Wolf,bad@example.edu,1818,
eve,Eve,Vil,eve@example.edu,1820,
lee,Robert,"Lee, Jr.",lee@example.edu,1816,@SUM(A1)
mis,Mis,Sing,mis@example.edu,1819,
una,Una,=cmd|' /C calc'!A0,una@example.edu,1817,
"""
STUDENTS = {
    "1815": ("Lovelace, Ada", "", "ada"),
    "1816": ("Lee, Jr., Robert", "", "lee"),
    "1817": ("Una", "", "una"),
    "1818": ("Wolf, Bad", "", "bad"),
    "1819": ("Sing, Mis", "", "mis"),
    "1820": ("Vil, Eve", "", "eve"),
}
CANVAS = Canvas(STUDENTS, {"501": ("Lesson 00", 10.0), "502": ("Survey", 5.0)})


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> CourseFolder:
    """Graded but for eve, who handed in anew since; mis handed in nothing."""
    course = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("course"))
    half = {
        "matmul_bytes": "def matmul_bytes(m, k, n, bytes_per_element):\n    return 1  # \x1b[2J"
    }
    file = course.hand_in("ada", solved(LESSON))
    file.with_name("timestamp.txt").write_text("2026-11-20 10:00:00 UTC")
    file.with_name("submission_secret.txt").write_text("of nbgrader's exchange")
    course.hand_in("bad", b"{ no notebook")
    course.hand_in("eve", submission(LESSON, {}))
    course.hand_in("lee", solved(LESSON, "%timeit 1\nx = 3", **half))
    course.hand_in("una", submission(LESSON, {}))
    (course.place / "grading" / "roster.csv").write_text(ROSTER)
    graded = autograder(course, "grade", "00")
    assert graded.returncode == 1, graded.stderr
    course.hand_in("eve", solved(LESSON))
    return course


def autograder(course: CourseFolder, *arguments: str) -> subprocess.CompletedProcess:
    """The command as it is called."""
    return subprocess.run(
        [sys.executable, "-m", "autograder", *arguments],
        cwd=course.place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@dataclass(frozen=True)
class Done:
    """What a command said."""

    returncode: int
    stdout: str
    stderr: str


def export(course: CourseFolder, *arguments: str) -> Done:
    return run(course, "export", *arguments)


def run(course: CourseFolder, *arguments: str) -> Done:
    """A command in this process, which has imported it all."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(course.place), redirect_stdout(out), redirect_stderr(err):
        code = main([*arguments])
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def sheet(course):
    file = course.place / "gradebook.csv"
    file.write_bytes(CANVAS.export())
    yield file
    for path in course.place.glob("gradebook*"):
        path.unlink()


@pytest.mark.slow
def test_everyone_is_one_line_with_a_state_and_no_grade_is_blank(course):
    done = autograder(course, "export")
    assert done.returncode == 1  # two need the instructor, who are named
    assert "bad: ungradable" in done.stdout
    assert "eve: not graded" in done.stdout
    assert "lee" not in done.stdout
    rows = list(csv.DictReader(io.StringIO((course.place / "grades.csv").read_text("utf-8"))))
    assert [(row["id"], row["state"], row["score"], row["points"]) for row in rows] == [
        ("ada", "graded", "10", "10"),
        ("bad", "ungradable", "", ""),
        ("eve", "not graded", "", ""),
        ("lee", "graded", "7", "7"),
        ("mis", "missing", "", ""),
        ("una", "untouched", "0", "0"),
    ]
    assert {row["lesson"] for row in rows} == {"00-start"}
    assert {row["most"] for row in rows} == {"10"}
    ada, bad, _, lee, _, una = rows
    assert ada["handed_in"] == "2026-11-20T10:00:00+00:00"
    assert (ada["seconds_late"], ada["penalty"], ada["section"]) == ("0", "0", "Tuesday")
    assert bad["reason"].startswith("start.ipynb is not a notebook")
    assert lee["last_name"] == "Lee, Jr."
    assert lee["section"] == "'@SUM(A1)"  # a spreadsheet shows it, and computes nothing
    assert una["last_name"] == "'=cmd|' /C calc'!A0"


def test_changes_by_hand_are_exported(course):
    with_grade = course.place / "grading" / "gradebook.db"
    saved = with_grade.read_bytes()
    change_by_hand(course, "lee", "bytes_of_three_matrices", 1.5)
    try:
        export(course, "--output", "by_hand.csv", "00-start")
        rows = csv.DictReader(io.StringIO((course.place / "by_hand.csv").read_text()))
        assert {row["id"]: row["score"] for row in rows}["lee"] == "8.5"
        folder = course.place / "by_hand"
        export(course, "00", "--gradescope", str(folder))
        said = json.loads((folder / "results" / "lee" / "results.json").read_text())
        assert said["score"] == 8.5
        assert said["output"] == "8.5 of 10 points. Points were changed by hand."
    finally:
        with_grade.write_bytes(saved)


def change_by_hand(course: CourseFolder, student: str, question: str, points: float) -> None:
    """As formgrader does."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course.place / 'grading' / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade(question, LESSON.module, LESSON.folder, student)
        grade.manual_score = points
        gradebook.db.commit()


def test_lessons_without_a_submission_are_left_out(course):
    shutil.copytree(course.place / "lessons" / "00-start", course.place / "lessons" / "01-other")
    try:
        done = export(course, "--output", "all.csv")
        assert done.stdout.startswith("all.csv: 00-start.\n")
    finally:
        shutil.rmtree(course.place / "lessons" / "01-other")


def test_points_go_into_a_sheet_beside_the_one_that_was_exported(course, sheet):
    before = sheet.read_bytes()
    done = export(course, "00", "--into", "gradebook.csv")
    assert done.returncode == 1  # eve and bad wait for the instructor
    data = sheet.with_name("gradebook-00-start.csv").read_bytes()
    expected = {("1815", "501"): 10.0, ("1816", "501"): 7.0, ("1817", "501"): 0.0}
    assert CANVAS.upload(data) == expected
    assert sheet.read_bytes() == before
    for student, state in (("bad", "ungradable"), ("eve", "not graded"), ("mis", "missing")):
        assert f", {student}: {state}\n" in done.stdout


def test_a_sheet_with_a_stranger_is_filled_only_partly_and_when_that_is_asked_for(course, sheet):
    sheet.write_bytes(sheet.read_bytes().replace(b"1815", b"4711").replace(b",ada,", b",nobody,"))
    filled = sheet.with_name("gradebook-00-start.csv")
    done = export(course, "00", "--into", "gradebook.csv")
    assert done.returncode == 1
    assert "row 3, Lovelace, Ada is nobody of the class" in done.stdout
    assert "Nothing was written" in done.stdout
    assert not filled.exists()
    done = export(course, "00", "--into", "gradebook.csv", "--partly")
    assert done.returncode == 1
    assert "in the class, but not in the sheet (1):\n  ada: 10 points" in done.stdout
    assert b'Robert",1816,,lee,Tue and Wed,7,,80.0' in filled.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["00", "--into", "gradebook.csv", "--column", "Survey"],
            "is worth 5 points, and the lesson 10",
        ),
        (["00", "--into", "gradebook.csv", "--maximum", "20"], "is worth 10 points there, not 20"),
        (["00", "--into", "gradebook.csv", "--output", "gradebook.csv"], "is the sheet itself"),
        (["00", "--into", "report.csv"], "say it, such as --maximum 10"),
        (["00", "--into", "report.csv", "--maximum", "nan", "--scale"], "is worth nan points"),
        (["00", "--into", "grading/roster.csv"], "neither Canvas nor Moodle"),
        (["00", "--into", "nowhere.csv"], "nowhere.csv: No such file"),
        (["--into", "gradebook.csv"], "name one lesson"),
        (["07"], "no lesson '07' is released"),
        (["00", "--code", "lessons"], "lessons is there already"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(course, sheet, arguments, why):
    report = "First name,Email address,Assignment: Start here (Real)\nAda,ada@example.edu,-\n"
    (course.place / "report.csv").write_text(report)
    done = export(course, *arguments)
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert sheet.read_bytes() == CANVAS.export()


def test_points_are_scaled_where_that_is_asked_for(course, sheet):
    arguments = ("--column", "Survey", "--scale", "--output", "gradebook-scaled.csv")
    export(course, "00", "--into", "gradebook.csv", *arguments)
    changes = CANVAS.upload(sheet.with_name("gradebook-scaled.csv").read_bytes())
    assert changes == {("1815", "502"): 5.0, ("1816", "502"): 3.5, ("1817", "502"): 0.0}


def test_code_is_laid_out_with_the_release_as_its_base(course):
    done = export(course, "00", "--code", "compare")
    folder = course.place / "compare"
    assert done.returncode == 1  # bad.ipynb cannot be read
    assert "bad: start.ipynb is not a notebook" in done.stdout
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    students = {f"submissions/{student}/start.py" for student in ("ada", "eve", "lee")}
    assert files == {"base/start.py", "info.csv", *students}
    base = (folder / "base" / "start.py").read_text()
    lee = (folder / "submissions" / "lee" / "start.py").read_text()
    assert "def matmul_flops" in base
    assert "return 2 * m * k * n" in lee
    assert "# %timeit 1\nx = 3\n" in lee
    assert "checks." not in lee  # the lesson's own cells are in the base alone
    for text in (base, lee):
        compile(text, "start.py", "exec")
    rows = list(csv.DictReader(io.StringIO((folder / "info.csv").read_text())))
    assert rows[0] == {
        "filename": "submissions/ada/start.py",
        "label": "Tuesday",
        "created_at": "2026-11-20 10:00:00+00:00",
        "full_name": "Ada Lovelace",
    }
    assert all((folder / row["filename"]).exists() for row in rows)


def test_code_can_go_without_names(course):
    export(course, "00", "--code", "blind", "--anonymous")
    folder = course.place / "blind"
    said = [str(path) + path.read_text() for path in folder.rglob("*") if path.is_file()]
    words = ("ada", "lee", "eve", "Lovelace", "Robert", "Tuesday", "example.edu")
    assert not [word for word in words if word in "".join(said).replace(str(course.place), "")]
    whose = list(csv.DictReader(io.StringIO((course.place / "blind-names.csv").read_text())))
    assert {row["id"] for row in whose} == {"ada", "eve", "lee"}
    assert {row["name"] for row in whose} == {
        path.name for path in (folder / "submissions").iterdir()
    }


def test_gradescope_gets_a_result_a_submission_and_finds_it(course, tmp_path):
    done = export(course, "00", "--gradescope", "gradescope")
    folder = course.place / "gradescope"
    assert done.returncode == 1
    assert "eve: not graded" in done.stdout
    assert {path.name for path in (folder / "results").iterdir()} == {"ada", "lee", "una"}
    results = json.loads((folder / "results" / "lee" / "results.json").read_text())
    assert results["score"] == 7
    assert sum(test["score"] for test in results["tests"]) == 7
    assert [test["status"] for test in results["tests"]] == ["passed"] * 2 + ["failed"] * 2 + [
        "passed"
    ] * 3
    assert (
        run_gradescope(folder, tmp_path / "lee", course.submitted("lee"), "LEE@example.edu")
        == results
    )
    assert (
        run_gradescope(folder, tmp_path / "ann", course.submitted("lee"), "ann@example.edu") is None
    )
    # Whoever handed in something else since gets no points for what was judged.
    assert (
        run_gradescope(folder, tmp_path / "una", course.submitted("ada"), "una@example.edu") is None
    )


def run_gradescope(folder: Path, place: Path, file: Path, address: str) -> dict | None:
    """Grade one submission as Gradescope does, with `place` for /autograder."""
    shutil.copytree(folder, place / "source")
    (place / "submission").mkdir()
    shutil.copy(file, place / "submission" / "anything.ipynb")
    users = [{"email": address, "id": 1, "name": "Somebody"}]
    (place / "submission_metadata.json").write_text(json.dumps({"users": users}))
    program = (place / "source" / "run_autograder").read_text()
    assert os.access(place / "source" / "run_autograder", os.X_OK)
    program = program.replace('"/autograder"', repr(str(place)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    found = place / "results" / "results.json"
    assert found.exists() == (done.returncode == 0)
    return json.loads(found.read_text()) if found.exists() else None


# Feedback goes back


def test_feedback_is_packed_under_the_names_of_the_platform(course):
    nobody = run(course, "return", "00")
    assert (nobody.returncode, "nobody has feedback to return" in nobody.stderr) == (2, True)
    prefixes = {"ada": "lovelaceada_1815_4242_", "bad": "Bad Wolf_7_assignsubmission_file_"}
    kept = course.place / "grading" / "collected" / "00-start.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({**prefixes, "eve": "Eve Vil_8_assignsubmission_file_"}))
    done = run(course, "return", "00")
    assert done.returncode == 1
    assert done.stdout.startswith("feedback-00-start.zip: feedback for 2 of 5.\nleft out (3):\n")
    assert "eve: not graded, not judged yet: grade again" in done.stdout
    assert "lee: `autograder collect` recorded no platform's name" in done.stdout
    with zipfile.ZipFile(course.place / "feedback-00-start.zip") as archive:
        assert archive.namelist() == [f"{prefix}start.html" for prefix in prefixes.values()]
        page = archive.read(archive.namelist()[0])
        assert page.count(b"<td>PASS</td>") == 7


def test_feedback_is_written_as_messages(course):
    done = run(course, "return", "00", "--mail", "us@example.edu", "--output", "box")
    assert done.stdout.startswith("box: feedback for 4 of 5.")
    to_lee = {message["To"]: message for message in mailbox.mbox(course.place / "box")}[
        "lee@example.edu"
    ]
    words, page = to_lee.get_payload()
    assert words.get_payload().startswith("00-start: 7 of 10 points.\n")
    assert page.get_filename() == "start.html"
    refused = run(course, "return", "00", "--mail", "nobody")
    assert "'nobody' is not an address that messages can come from" in refused.stderr


def test_what_came_by_nbgraders_exchange_goes_back_by_it(course, tmp_path):
    assert run(course, "return", "00", "--mail", "us@example.edu").returncode == 1
    where = f"--Exchange.root={tmp_path}"
    done = course.run("release_feedback", "00-start", "--student=ada", where)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("second-token/feedback/*.html"))) == 1


# Why a submission has its points


def test_why_tells_the_case_the_cell_and_the_challenge_of_each_question(course):
    done = run(course, "why", "lee", "00-start")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lee, 00-start: 7 of 10 points.\n\n")
    lost = next(part for part in done.stdout.split("\n\n") if re.match(r"0 of [\d.]+  \w+", part))
    assert re.search(r"Asked after cell \d+: matmul_bytes of cell \d+", lost)
    check, seed = re.search(r'find\("(.*)"\).challenge\((\d+)\)', lost).groups()
    assert find(check).challenge(int(seed))
    assert "\x1b" not in done.stdout
    assert done.stdout.endswith("autograder grade 00-start --student lee --judge-again\n")


def test_why_tells_who_has_no_points_and_that_somebody_is_unknown(course):
    done = run(course, "why", "bad", "00")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("bad, 00-start: ungradable. start.ipynb is not a notebook")
    assert run(course, "why", "mis", "00").returncode == 1
    assert run(course, "why", "eva", "00").stderr.endswith("no student has the id 'eva'\n")
