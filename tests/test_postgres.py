"""The gradebook on PostgreSQL, a real server, says what it says on SQLite."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from nbgrader.apps.api import NbGraderAPI
from nbgrader_course import CourseFolder
from postgres import Server, programs, server
from submissions import answers, solved, submission

from autograder.authoring.source import POINTS
from autograder.classroom.course import open_course
from lessons import COURSE, ROOT

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(
        programs() is None, reason="PostgreSQL is not installed: apt-get install postgresql"
    ),
]

LESSON = COURSE.read("00-start")
ROSTER = """id,first_name,last_name,email,extension
ada,Ada,"Lovelace, Countess",ada@example.edu,
ben,Ben,O'Hara,ben@example.edu,0.5
eve,Ève,Нет,,
kim,Kim,Lee,,
zoe,Zoë,Missing,,
"""
LATE = "--LatePenalty.percent_a_day=10"
OF_ITS_OWN = ("id", "last_score_id", "base_id", "submission_id", "grade_id", "index")


@pytest.fixture(scope="module")
def postgres():
    with server() as running:
        yield running


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> CourseFolder:
    """A class, late ones among it, graded with SQLite."""
    folder = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("sqlite"))
    folder.hand_in("ada", solved(LESSON))
    folder.hand_in("ben", submission(LESSON, dict(list(answers(LESSON).items())[:1])))
    folder.hand_in("eve", b"no notebook")
    named = folder.hand_in("kim", solved(LESSON))
    named.rename(named.with_name("start (1).ipynb"))
    for student, day in (("ada", 3), ("ben", 3), ("eve", 1)):
        stamp = folder.submitted(student).with_name("timestamp.txt")
        stamp.write_text(f"2026-12-0{day} 18:00:00 UTC")
    (folder.place / "grading" / "roster.csv").write_text(ROSTER)
    set_due_date(folder)
    grade(folder, LATE)
    return folder


def set_due_date(folder: CourseFolder, *options: str) -> None:
    due = ("--duedate=2026-12-02 18:00 UTC", *options)
    done = folder.run("db", "assignment", "add", LESSON.folder, *due)
    assert done.returncode == 0, done.stderr


def on_postgres(graded: CourseFolder, place: Path, url: str) -> CourseFolder:
    """The same class elsewhere, all files of its grading there, and a new gradebook in a database."""
    shutil.copytree(graded.place, place, ignore=shutil.ignore_patterns("gradebook.db"))
    folder = CourseFolder(LESSON, place)
    with (place / "nbgrader_config.py").open("a") as file:
        file.write(f"c.CourseDirectory.db_url = {url!r}\n")
    done = folder.run("generate_assignment", LESSON.folder, "--force")
    assert done.returncode == 0, done.stderr
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "autograder", *arguments]


def begin(folder: CourseFolder, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        command("grade", LESSON.folder, "--json", *options),
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen) -> subprocess.CompletedProcess:
    said, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


def grade(folder: CourseFolder, *options: str) -> subprocess.CompletedProcess:
    return end(begin(folder, *options))


def states(done: subprocess.CompletedProcess) -> dict[str, str]:
    assert done.stdout, done.stderr
    return {found["id"]: found["state"] for found in json.loads(done.stdout)["students"]}


def exported(folder: CourseFolder) -> str:
    subprocess.run(
        command("export"),
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    return (folder.place / "grades.csv").read_text(encoding="utf-8-sig")


def as_formgrader_reads(folder: CourseFolder) -> dict[str, object]:
    """What formgrader's pages ask of nbgrader, without ids that are drawn and in one order."""
    with chdir(folder.place):
        course = open_course()
        api = NbGraderAPI(course.directory, parent=course.app)
        name, module = LESSON.folder, LESSON.module
        found = {
            "assignments": api.get_assignments(),
            "notebooks": api.get_notebooks(name),
            "submissions": api.get_submissions(name),
            "submitted notebooks": api.get_notebook_submissions(name, module),
            "students": api.get_students(),
            "of a student": api.get_student_submissions("ada"),
            "notebooks of a student": api.get_student_notebook_submissions("ben", name),
        }
        with course.gradebook() as gradebook:
            found["averages"] = [
                gradebook.average_assignment_score(name),
                gradebook.average_notebook_code_score(module, name),
            ]
            found["grades"] = [grade.to_dict() for grade in all_grades(gradebook)]
    return in_one_order(found)


def all_grades(gradebook):
    for student in ("ada", "ben", "eve"):
        yield from gradebook.find_submission_notebook(LESSON.module, LESSON.folder, student).grades


def in_one_order(value):
    if isinstance(value, dict):
        return {key: in_one_order(inner) for key, inner in value.items() if key not in OF_ITS_OWN}
    if isinstance(value, list):
        return sorted(map(in_one_order, value), key=str)
    return value


@pytest.mark.slow
def test_a_class_stands_on_postgresql_as_on_sqlite(postgres: Server, graded, tmp_path):
    folder = on_postgres(graded, tmp_path / "course", postgres.make("same"))
    set_due_date(folder)
    there, here = grade(folder, LATE), grade(graded, LATE)
    assert there.returncode == here.returncode == 1, there.stderr  # some are ungradable or missing
    assert json.loads(there.stdout) == json.loads(here.stdout)
    penalties = {found["id"]: found["penalty"] for found in json.loads(there.stdout)["students"]}
    assert (penalties["ada"], penalties["ben"]) == (1.0, 1.0)
    assert exported(folder) == exported(graded)
    assert not (folder.place / "grading" / "gradebook.db").exists()
    read = as_formgrader_reads(folder)
    assert read == as_formgrader_reads(graded)
    assert folder.run("generate_feedback", LESSON.folder).returncode == 0


def large_class(graded: CourseFolder, place: Path, url: str, students: int) -> CourseFolder:
    """Many who handed in the same file, the result of which is known."""
    folder = on_postgres(graded, place, url)
    original = graded.place / "grading" / "submitted" / "ada"
    submitted = place / "grading" / "submitted"
    shutil.rmtree(submitted)
    shutil.rmtree(place / "grading" / "autograded")
    for number in range(students):
        shutil.copytree(original, submitted / f"s{number}")
    (place / "grading" / "roster.csv").unlink()
    return folder


@pytest.mark.slow
def test_two_graders_at_once_write_everyone_once(postgres: Server, graded, tmp_path):
    folder = large_class(graded, tmp_path / "course", postgres.make("two"), 12)
    roster = "".join(f"s{number},First,Last\n" for number in range(12))
    (folder.place / "grading" / "roster.csv").write_text("id,first_name,last_name\n" + roster)
    for done in [end(process) for process in [begin(folder), begin(folder)]]:
        assert done.returncode == 0, done.stderr
        assert set(states(done).values()) == {"graded"}
    with chdir(folder.place), open_course().gradebook() as gradebook:
        assert len(gradebook.assignment_submissions(LESSON.folder)) == 12
        assert gradebook.average_assignment_score(LESSON.folder) == POINTS


@pytest.mark.slow
def test_a_server_that_stops_is_named_and_the_next_run_writes_the_rest(
    postgres: Server, graded, tmp_path
):
    folder = large_class(graded, tmp_path / "course", postgres.make("stops"), 16)
    process = begin(folder)
    while len(list((folder.place / "grading").glob("autograded/*/*/*.ipynb"))) < 4:
        assert process.poll() is None, end(process).stderr
        time.sleep(0.05)
    postgres.stop("immediate")
    try:
        done = end(process)
        assert done.returncode == 1
        assert "Not everything is in the gradebook" in done.stderr
        assert "run the same command again" in done.stderr
        assert "Traceback" not in done.stderr
        assert "nbgrader db upgrade" not in done.stderr
        without = grade(folder)
        assert without.returncode == 2
        assert "Nothing was graded: the gradebook postgresql" in without.stderr
    finally:
        postgres.start()
    done = grade(folder)
    assert done.returncode == 0, done.stderr
    assert len(states(done)) == 16
    assert set(states(done).values()) == {"graded"}


def test_a_gradebook_that_does_not_know_the_lesson_is_told_what_to_do(postgres: Server, graded):
    done = grade(graded, f"--CourseDirectory.db_url={postgres.make('empty')}")
    assert done.returncode == 2
    assert "nbgrader generate_assignment 00-start --force" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_password_stands_in_no_message(graded, tmp_path):
    url = "postgresql+psycopg2://grader:hush@localhost:1/course"
    done = grade(graded, f"--CourseDirectory.db_url={url}")
    assert done.returncode == 2
    assert "grader:***@localhost:1/course" in done.stderr
    assert "hush" not in done.stderr
    assert "Traceback" not in done.stderr
