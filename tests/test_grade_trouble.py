"""`autograder grade` when things go wrong: what is done stays, what is not is named."""

import fcntl
import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from grading_runs import (
    end_of,
    grade,
    kept,
    no_process_left,
    result_file,
    results,
    stand,
    start,
    wait_until,
)
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from submissions import opening, solved, submission
from test_nbgrader_trouble import UNLUCKY

from autograder.assignment import read_assignment
from autograder.authoring.source import POINTS
from autograder.classroom.course import open_course
from autograder.classroom.standing import HAS_GRADE
from lessons import COURSE

pytestmark = [needs_bubblewrap, pytest.mark.slow]

LESSON = COURSE.read("00-start")
NAMES = ("ann", "bob", "cleo")


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> CourseFolder:
    """Three students with all points, judged, but not in the gradebook yet."""
    course = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("judged") / "course")
    for name in NAMES:
        course.hand_in(name, solved(LESSON, f"name = {name!r}"))
    assert grade(course, "--shard", "1/1").returncode == 0
    return course


@pytest.fixture
def course(judged, tmp_path) -> CourseFolder:
    """A copy of it."""
    return CourseFolder(LESSON, shutil.copytree(judged.place, tmp_path / "course"))


def configure(course: CourseFolder, first: str) -> str:
    """Put something in front of nbgrader's configuration; return what it was."""
    config = course.place / "nbgrader_config.py"
    well = config.read_text(encoding="utf-8")
    config.write_text(first + well, encoding="utf-8")
    return well


def all_points(course: CourseFolder, *names: str) -> bool:
    return all(sum(course.points(name).values()) == POINTS for name in names)


# --- it cannot begin -----------------------------------------------------------------------------


def refused(course: CourseFolder, *arguments: str, **options) -> str:
    """The one line of a command that could not begin."""
    before = kept(course)
    done = grade(course, *arguments, **options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Nothing was graded: ")
    assert "Traceback" not in done.stderr
    assert kept(course) == before
    assert not (course.place / "grading" / "autograded").exists()
    return done.stderr


def test_a_roster_that_cannot_be_read_is_said_before_anything_is_judged(course):
    shutil.rmtree(results(course))
    (course.place / "grading" / "roster.csv").write_text("id,group\nann,1\n")
    assert "no column is called 'group'" in refused(course)


def test_a_lesson_of_no_such_name_is_named_with_those_that_there_are(course):
    shutil.rmtree(course.place / "lessons" / "00-start")
    assert "no lesson '00-start' is released" in refused(course)


def test_outside_of_a_course_it_says_where_to_work(course):
    (course.place / "nbgrader_config.py").unlink()
    assert f"{course.place} holds no nbgrader_config.py" in refused(course)


def test_a_gradebook_that_does_not_know_the_lesson_is_said_first(course):
    (course.place / "grading" / "gradebook.db").unlink()
    assert "nbgrader generate_assignment 00-start --force" in refused(course)


def test_a_gradebook_that_is_none_is_said_first(course):
    (course.place / "grading" / "gradebook.db").write_bytes(b"not a database at all" * 100)
    assert "cannot be used" in refused(course)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--Judge.cell_secnds=3", "Judge has no setting cell_secnds; it has cell_seconds, "),
        ("--Judge.cell_seconds=long", "expected a float, not the str 'long'"),
        ("--Judge.judge_again=True", "say --judge-again"),
        ("more", "'more' is more than this command takes"),
    ],
)
def test_a_setting_that_is_none_is_refused(course, option, why):
    assert why in refused(course, option)


def test_without_a_sandbox_nothing_is_graded_unless_all_has_a_result(course, no_bubblewrap):
    course.hand_in("dan", solved(LESSON, "name = 'dan'"))
    assert "apt-get install bubblewrap" in refused(course, environment=no_bubblewrap)
    done = grade(course, "--kept-only", environment=no_bubblewrap)
    assert done.returncode == 1
    assert "  dan: not judged yet: grade again" in done.stdout
    assert all_points(course, *NAMES)
    shutil.rmtree(course.submitted("dan").parent.parent)
    assert grade(course, environment=no_bubblewrap).returncode == 0


# --- one submission in trouble -------------------------------------------------------------------


def test_a_machine_that_fails_for_one_gives_that_one_no_grade(course):
    for name in ("ann", "bob"):
        course.hand_in(name, solved(LESSON, f"new = {name!r}"))
    well = configure(course, UNLUCKY)
    done = grade(course)
    assert done.returncode == 1
    assert "not graded (1): bob" in done.stdout
    assert "  bob: the machine failed: no process today: grade again" in done.stdout
    assert course.points("bob") is None
    assert all_points(course, "ann", "cleo")
    (course.place / "nbgrader_config.py").write_text(well)
    assert "1/1" in grade(course).stderr
    assert all_points(course, *NAMES)


def test_a_failing_machine_takes_no_grade_away(course):
    assert grade(course).returncode == 0
    configure(course, UNLUCKY)
    done = grade(course, "--judge-again")
    assert done.returncode == 1
    assert "not judged again; the earlier result stands (1): bob" in done.stdout
    assert "  bob: the machine failed: no process today" in done.stdout
    assert all_points(course, *NAMES)


def test_a_result_for_which_there_is_no_room_is_named_and_the_others_are_graded(course):
    shutil.rmtree(results(course))
    in_the_way = result_file(course, "bob")
    (in_the_way / "full").mkdir(parents=True)
    done = grade(course)
    assert done.returncode == 1
    assert "  bob: its result could not be kept" in done.stdout
    assert course.points("bob") is None
    assert all_points(course, "ann", "cleo")
    shutil.rmtree(in_the_way)
    done = grade(course)
    assert (done.returncode, "1/1" in done.stderr) == (0, True)
    assert all_points(course, *NAMES)


def test_the_result_of_a_file_that_is_replaced_before_it_is_judged_is_that_of_the_later(
    course, monkeypatch
):
    monkeypatch.chdir(course.place)
    lesson = open_course().lesson("00-start")
    with closing(lesson.desk()) as desk:
        notebook = course.hand_in("bob", submission(LESSON, {}))
        assert not desk.find(notebook)  # by what lies there now
        course.hand_in("bob", solved(LESSON, "name = 'bob, later'"))
        before = kept(course)
        assert desk.judge(notebook).result.points == POINTS
        assert len(kept(course)) == len(before) + 1
        assert desk.kept(notebook).result.points == POINTS
    assert grade(course).returncode == 0
    assert all_points(course, "bob")


ODD = ("Wei Zhang", "李明", 'O\'Neil "Alex"', "[a]", "-rf", "b,c", "b", "ünï", "%s{0}", "*")


def test_ids_may_hold_what_a_folders_name_may_hold(course):
    for name in ODD:
        course.hand_in(name, solved(LESSON, f"# {name}"))
    roster = "".join('"{}"\n'.format(name.replace('"', '""')) for name in ODD)
    (course.place / "grading" / "roster.csv").write_text(f"id\n{roster}")
    done = grade(course)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all_points(course, *NAMES, *ODD)
    assert grade(course).stderr == ""


def test_a_folder_whose_name_cannot_be_an_id_troubles_no_other(course):
    for name in ("a\nb", os.fsdecode(b"\xff"), "a\x1b[31m"):
        course.hand_in(name, solved(LESSON))
    done = grade(course)
    assert all_points(course, *NAMES)
    assert done.returncode == 1
    assert "not graded (3)" in done.stdout
    assert (
        done.stdout.count("such characters is not an id: rename the folder, and grade again") == 3
    )
    assert "\x1b" not in done.stdout


WITHOUT_RIGHTS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]


@pytest.mark.parametrize("what", ["the student's folder", "the lesson's folder", "the notebook"])
def test_what_this_account_may_not_read_is_one_line_and_troubles_no_other(course, what):
    notebook = course.hand_in("dan", solved(LESSON, "name = 'dan'"))
    folder = notebook.parent
    closed = {"the notebook": notebook, "the lesson's folder": folder}.get(what, folder.parent)
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        done = end_of(start(course, front=WITHOUT_RIGHTS if os.geteuid() == 0 else []))
    finally:
        closed.chmod(mode)
    assert done.returncode == 1
    assert "not graded (1): dan" in done.stdout
    assert "  dan: Permission denied: this account has to be able to read" in done.stdout
    assert "Traceback" not in done.stderr
    assert course.points("dan") is None
    assert all_points(course, *NAMES)


# --- interrupted ---------------------------------------------------------------------------------


def test_what_was_judged_before_ctrl_c_is_kept_and_the_next_run_does_the_rest(course):
    shutil.rmtree(results(course))
    course.hand_in("zoe", opening(LESSON, "while True:\n    pass"))
    with no_process_left():
        process = start(course, "--jobs", "1")
        wait_until(lambda: len(kept(course)) == len(NAMES), process)
        process.send_signal(signal.SIGINT)
        done = end_of(process)
    assert (done.returncode, done.stdout) == (130, "")
    last = done.stderr.splitlines()[-1]
    assert last == "Interrupted. What was judged is kept: run the same command again."
    assert "Traceback" not in done.stderr
    course.hand_in("zoe", solved(LESSON, "name = 'zoe'"))
    done = grade(course)
    assert (done.returncode, "1/1" in done.stderr) == (0, True)
    assert all_points(course, *NAMES, "zoe")


# Put in front of nbgrader's configuration: the grader is killed at one student's points.
KILLED = """
import os, signal
from nbgrader.preprocessors import SaveAutoGrades
from autograder.classroom.due_dates import GrantExtensions
from autograder.classroom.save_points import SavePoints

def killed(times, well):
    runs = []
    def run(self, *arguments):
        runs.append(1)
        if len(runs) > times:
            os.kill(os.getpid(), signal.SIGKILL)
        return well(self, *arguments)
    return run
"""
N_QUESTIONS = len(read_assignment(LESSON.student).questions)
MOMENTS = {
    "before any point": "SavePoints.preprocess = killed(1, SavePoints.preprocess)",
    "at the second point": "SaveAutoGrades._add_score = "
    f"killed({N_QUESTIONS + 1}, SaveAutoGrades._add_score)",
    "after all points": "GrantExtensions.preprocess = killed(1, GrantExtensions.preprocess)",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_grader_that_is_killed_while_it_writes_points_leaves_no_half_of_them(course, moment):
    well = configure(course, f"{KILLED}{MOMENTS[moment]}\n")
    with no_process_left():
        assert grade(course).returncode == -signal.SIGKILL
    assert_nothing_is_half(course)
    assert stand(course)["ann"].points == POINTS
    assert stand(course)["bob"].state == "not graded"
    (course.place / "nbgrader_config.py").write_text(well)
    assert "2/2" in grade(course).stderr
    assert all_points(course, *NAMES)


def test_ctrl_c_while_it_writes_points_leaves_no_half_of_them(course):
    interrupted = KILLED.replace("SIGKILL", "SIGINT") + MOMENTS["at the second point"]
    well = configure(course, f"{interrupted}\n")
    done = grade(course)
    assert (done.returncode, done.stdout) == (130, "")
    assert "What was judged is kept: run the same command again." in done.stderr
    assert "Traceback" not in done.stderr
    assert_nothing_is_half(course)
    assert stand(course)["ann"].points == POINTS
    (course.place / "nbgrader_config.py").write_text(well)
    assert grade(course).returncode == 0
    assert all_points(course, *NAMES)


def assert_nothing_is_half(course: CourseFolder) -> None:
    """The gradebook can be read, and of each student it holds all points or none."""
    file = course.place / "grading" / "gradebook.db"
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    module, folder = course.lesson.module, course.lesson.folder
    with Gradebook(f"sqlite:///{file}") as gradebook:
        for found in gradebook.submission_dicts(folder):
            student = found["student"]
            grades = gradebook.find_submission_notebook(module, folder, student).grades
            assert len({grade.auto_score is None for grade in grades}) == 1, student


def test_whenever_the_grader_is_killed_no_grade_is_wrong(course):
    draw = random.Random("kills 12")
    points = dict.fromkeys(NAMES, POINTS)
    with no_process_left():
        for number in range(12):
            for name in draw.sample(NAMES, 2):
                points[name] = draw.choice([POINTS, 0])
                mark = f"handed_in = {number}"
                work = solved(LESSON, mark) if points[name] else submission(LESSON, {})
                work.cells[0].source += f"\n{mark}"
                course.hand_in(name, work)
            kill_after(course, draw.randrange(1, 12), 0.1 * draw.random())
            assert_nothing_is_half(course)
            for name, found in stand(course).items():
                assert found.state not in HAS_GRADE or found.points == points[name], (number, name)
        done = grade(course)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: found.points for name, found in stand(course).items()} == points


def kill_after(course: CourseFolder, changes: int, seconds: float) -> None:
    """Kill a grader when so many files of the class have changed, and a moment later; or it ends."""

    def look() -> set[tuple[str, int]]:
        found = set()
        for folder, _, names in os.walk(course.place / "grading"):
            for name in names:
                path = Path(folder, name)
                try:
                    found.add((str(path), path.stat().st_mtime_ns))
                except OSError:
                    continue
        return found

    seen = look()
    new: set[tuple[str, int]] = set()

    def enough() -> bool:
        new.update(look() - seen)
        return len(new) >= changes

    process = start(course)
    wait_until(enough, process)
    time.sleep(seconds)
    process.kill()
    end_of(process)


# --- two graders ---------------------------------------------------------------------------------


def test_two_graders_at_once_both_end_well(course):
    shutil.rmtree(results(course))
    with no_process_left():
        both = [start(course, "--jobs", "1") for _ in range(2)]
        done = [end_of(process) for process in both]
    assert [one.returncode for one in done] == [0, 0], done
    assert_nothing_is_half(course)
    assert all_points(course, *NAMES)
    assert len(kept(course)) == len(NAMES)


def test_a_grader_waits_for_another_that_writes_and_says_so(course):
    with (course.place / "grading" / "writing.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(course)
        said = process.stderr.readline()
        assert "Another process writes the gradebook; this one waits for it." in said
        assert course.points("ann") is None
    done = end_of(process)
    assert done.returncode == 0
    assert all_points(course, *NAMES)
