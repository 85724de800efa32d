"""`autograder grade`: a class gets its points once, is told who has none, and loses nothing halfway."""

import json
import shutil

import pytest
from confined import needs_bubblewrap
from grading_runs import grade, kept, no_process_left, stand
from nbgrader_course import CourseFolder
from submissions import answers, opening, solved, submission

from autograder.classroom import judging
from autograder.classroom.course import open_course
from autograder.classroom.standing import State
from lessons import COURSE

pytestmark = needs_bubblewrap

LESSON = COURSE.read("00-start")
ROSTER = "id,first_name,last_name\nann,Ann,Ash\nbob,Bob,Birch\ncleo,Cleo,Cedar\ndan,Dan,Dogwood\n"
STATES = {"ann": "graded", "bob": "untouched", "cleo": "ungradable", "dan": "missing"}


def fill(course: CourseFolder) -> CourseFolder:
    """Let one student of each kind hand in, all but dan."""
    (course.place / "grading" / "roster.csv").write_text(ROSTER)
    course.hand_in("ann", solved(LESSON, "name = 'ann'"))
    course.submitted("ann").with_name("timestamp.txt").write_text("2026-11-02 06:00:00 UTC")
    course.hand_in("bob", submission(LESSON, {}))
    course.hand_in("cleo", b"")
    return course


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class that was graded, and how that ended."""
    course = fill(CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("graded")))
    with no_process_left():
        return course, grade(course)


@pytest.fixture
def course(graded, tmp_path) -> CourseFolder:
    """A copy of it."""
    return CourseFolder(LESSON, shutil.copytree(graded[0].place, tmp_path / "course"))


# --- what it says --------------------------------------------------------------------------------


@pytest.mark.slow
def test_everyone_is_in_the_one_state_that_holds_and_the_last_lines_name_them(graded):
    course, done = graded
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "2 of 4 have a grade.",
        "graded (1): ann",
        "untouched (1): bob",
        "ungradable (1): cleo",
        "  cleo: start.ipynb is not a notebook: Expecting value: line 1 column 1 (char 0): it has to be "
        "handed in again",
        "missing (1): dan",
    ]
    assert {name: found.state for name, found in stand(course).items()} == STATES
    assert sum(course.points("ann").values()) == 10
    assert sum(course.points("bob").values()) == 0
    assert course.points("dan") is None


def test_progress_goes_to_the_other_stream(graded):
    _, done = graded
    assert "judging" in done.stderr
    assert "3/3" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_json_is_all_that_is_printed(course):
    (course.submitted("cleo")).write_text("{")
    done = grade(course, "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["lesson"] == "00-start"
    assert said["counts"] == {
        "graded": 1,
        "untouched": 1,
        "ungradable": 1,
        "not graded": 0,
        "missing": 1,
    }
    assert {entry["id"]: entry["state"] for entry in said["students"]} == STATES
    assert said["students"][0] == {
        "id": "ann",
        "state": "graded",
        "score": 10,
        "points": 10,
        "penalty": 0,
        "reason": "",
        "timed_out": False,
        "unread": 0,
    }
    assert said["students"][3]["score"] is None
    assert "judging" in done.stderr


@pytest.mark.slow
def test_the_exit_code_is_0_when_all_that_was_handed_in_has_a_grade(course):
    shutil.rmtree(course.submitted("cleo").parent)
    done = grade(course)
    assert done.returncode == 0
    assert "missing (2): cleo, dan" in done.stdout


@pytest.mark.slow
def test_nobody_handed_in_anything(empty):
    (empty.place / "grading" / "roster.csv").write_text(ROSTER)
    done = grade(empty)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "0 of 4 have a grade.",
        "missing (4): ann, bob, cleo, dan",
    ]


@pytest.mark.slow
def test_a_penalty_that_changes_is_named_once(course):
    due = ("db", "assignment", "add", "00-start", "--duedate", "2026-11-01 12:00:00 UTC")
    assert course.run(*due).returncode == 0
    late = "--LatePenalty.percent_a_day=10"
    done = grade(course, late, "--kept-only")
    assert done.stdout.splitlines()[-1] == "penalty for being late changed (1): ann"
    assert stand(course)["ann"].score == 9
    assert "penalty" not in grade(course, late).stdout
    said = json.loads(grade(course, "--json").stdout)
    assert said["penalty_changed"] == ["ann"]
    assert said["students"][0]["score"] == 10


# --- each file once ------------------------------------------------------------------------------


def test_a_second_run_judges_nothing_and_needs_no_sandbox(course, no_bubblewrap):
    before = kept(course)
    done = grade(course, environment=no_bubblewrap)
    assert done.returncode == 1
    assert done.stdout.startswith("2 of 4 have a grade.")
    assert done.stderr == ""
    assert kept(course) == before


@pytest.mark.slow
def test_a_gradebook_that_was_lost_is_written_again_without_running_code(course, no_bubblewrap):
    shutil.rmtree(course.place / "grading" / "autograded")
    (course.place / "grading" / "gradebook.db").unlink()
    again = ("generate_assignment", "00-start", "--force")
    assert course.run(*again).returncode == 0
    grade(course, environment=no_bubblewrap)
    assert {name: found.state for name, found in stand(course).items()} == STATES


@pytest.mark.parametrize("jobs", ["1", pytest.param("4", marks=pytest.mark.slow)])
def test_a_file_that_is_handed_in_anew_is_graded_anew_and_no_other(course, jobs):
    before = kept(course)
    notebook = solved(LESSON, "name = 'bob'")
    course.hand_in("bob", notebook)
    stamp = course.submitted("bob").with_name("timestamp.txt")
    stamp.write_text("2020-01-01 12:00:00 UTC")  # older than what is graded, to nbgrader
    course.hand_in("cleo", solved(LESSON, "name = 'cleo'"))
    done = grade(course, "--jobs", jobs)
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stderr
    assert [stand(course)[name].points for name in ("ann", "bob", "cleo")] == [10, 10, 10]
    assert before.items() <= kept(course).items()
    assert len(kept(course)) == len(before) + 2


@pytest.mark.slow
def test_what_is_handed_in_after_nbgraders_own_command_is_graded_anew(empty):
    fill(empty)
    assert empty.autograde().returncode == 0
    assert sum(empty.points("bob").values()) == 0
    empty.hand_in("bob", solved(LESSON, "name = 'bob'"))
    assert "1/1" in grade(empty).stderr
    assert sum(empty.points("bob").values()) == 10


def test_on_request_all_points_are_written_again_without_running_code(course, no_bubblewrap):
    done = grade(course, "--force", environment=no_bubblewrap)
    assert "gradebook: 100%" in done.stderr
    assert "3/3" in done.stderr
    assert {name: found.state for name, found in stand(course).items()} == STATES


@pytest.mark.slow
def test_on_request_all_is_judged_again_and_counts(course):
    before = kept(course)
    done = grade(course, "--judge-again")
    assert done.stdout.startswith("2 of 4 have a grade."), done.stdout
    assert kept(course).keys() == before.keys()
    assert all(time > before[name] for name, time in kept(course).items())


@pytest.mark.slow
def test_what_was_graded_with_other_settings_is_another_result_that_all_who_read_find(course):
    before = kept(course)
    done = grade(course, "--Judge.cell_seconds=60")
    assert "3/3" in done.stderr
    assert len(kept(course)) == 2 * len(before)
    assert {name: found.state for name, found in stand(course).items()} == STATES
    assert stand(course)["cleo"].reason
    course.hand_in("ann", submission(LESSON, {}))
    assert stand(course)["ann"].state == State.NOT_GRADED


@pytest.mark.slow
def test_one_student_is_graded_and_nobody_else(course):
    before = kept(course)
    course.hand_in("ann", solved(LESSON, "name = 'Ann'"))
    course.hand_in("dan", solved(LESSON))
    done = grade(course, "--student", "dan", "--judge-again")
    assert done.stdout.startswith("1 of 1 have a grade.\ngraded (1): dan"), done.stdout
    assert kept(course).items() > before.items()
    assert stand(course)["ann"].state == State.NOT_GRADED
    done = grade(course, "--student=eve")
    assert done.returncode == 2
    assert "no student has the id 'eve'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("parts", [["1/1"], ["1/2", "2/2"]], ids=len)
def test_parts_are_judged_apart_and_written_together(empty, parts):
    fill(empty)
    for part in parts:
        done = grade(empty, "--shard", part)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("This part is judged.")
        assert not (empty.place / "grading" / "autograded").exists()
    assert len(kept(empty)) == 3
    grade(empty, "--kept-only")
    assert {name: found.state for name, found in stand(empty).items()} == STATES


# --- endless loops -------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_endless_loop_costs_its_own_points_only(course):
    name = sorted(answers(LESSON))[0]
    course.hand_in("bob", opening(LESSON, "while True:\n    pass"))
    signature = answers(LESSON)[name].splitlines()[0]
    course.hand_in("cleo", solved(LESSON, **{name: f"{signature}\n    while True:\n        pass"}))
    grade(course, "--Judge.cell_seconds=5", "--Judge.question_seconds=5")
    with_settings = {name: sum(course.points(name).values()) for name in ("ann", "bob", "cleo")}
    assert (with_settings["ann"], with_settings["bob"]) == (10, 10)
    assert 0 < with_settings["cleo"] < 10


@pytest.mark.slow
def test_others_are_judged_while_one_hangs(empty, monkeypatch):
    empty.hand_in("ann", opening(LESSON, "while True:\n    pass"))
    for name in ("bob", "cleo", "dan"):
        empty.hand_in(name, solved(LESSON, f"name = {name!r}"))
    monkeypatch.setattr(judging, "PATIENCE", 0.5)
    monkeypatch.chdir(empty.place)
    lesson = open_course(["--Judge.cell_seconds=5"]).lesson("00-start")
    desk = lesson.desk()
    try:
        ended = list(judging.judge_here(desk, list(lesson.submissions()), 1))
        assert [problem for _, problem in ended] == [""] * 4
        assert ended[-1][0].student == "ann"
        found = desk.find(ended[-1][0].notebook)
        assert found.result.points == 10
    finally:
        desk.close()


def test_states_are_those_that_are_documented(graded):
    assert {state.value for state in State} == {*STATES.values(), "not graded"}
