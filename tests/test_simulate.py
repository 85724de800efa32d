"""A simulated class is the same each time, holds every kind of student, and gets what it has to get."""

import csv
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from simulated import after_handing_in_again, differences, read_expected, standings_in

from autograder.__main__ import main
from autograder.authoring.source import POINTS
from autograder.classroom.roster import COLUMNS, read_roster
from autograder.classroom.simulation.folder import AGAIN
from autograder.classroom.simulation.kinds import KINDS, Desk, draw_kinds, name_of
from autograder.classroom.simulation.known_points import (
    Points,
    points_with_bug,
    points_without,
)
from autograder.classroom.simulation.material import Material
from autograder.classroom.simulation.names import TELLING, draw_students
from autograder.classroom.standing import State
from lessons import COURSE, FOLDERS, ROOT

LESSON = "00-start"
COUNT = len(KINDS) + 2


def simulate(place: Path, seed: int = 5, count: int = COUNT) -> int:
    options = ["--students", str(count), "--seed", str(seed), "--into", str(place)]
    return main(["simulate", LESSON, *options])


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A class."""
    place = tmp_path_factory.mktemp("class") / "simulated"
    assert simulate(place) == 0
    return place


# --- the folder ----------------------------------------------------------------------------------


def files_in(place: Path) -> dict[str, bytes]:
    """All but the gradebook, in which nbgrader draws ids of its own."""
    files = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    del files["grading/gradebook.db"]
    return files


@pytest.mark.slow
def test_the_same_seed_makes_the_same_class_in_place_of_another(place, tmp_path):
    again = tmp_path / "again"
    assert simulate(again, seed=6, count=3) == 0
    assert files_in(again) != files_in(place)
    assert simulate(again) == 0
    assert files_in(again) == files_in(place)
    assert [found.name for found in tmp_path.iterdir()] == ["again"]


def test_a_folder_that_holds_something_else_is_refused_and_stays(tmp_path, capsys):
    (tmp_path / "expected.json").write_text('{"students": []}', encoding="utf-8")
    assert simulate(tmp_path) == 2
    assert "holds no simulated class" in capsys.readouterr().err
    assert [found.name for found in tmp_path.iterdir()] == ["expected.json"]


@pytest.mark.slow
def test_a_link_to_a_simulated_class_is_refused(place, tmp_path):
    (tmp_path / "link").symlink_to(place)
    assert simulate(tmp_path / "link") == 2
    assert (tmp_path / "link").is_symlink()


def test_a_lesson_that_does_not_exist_is_named(tmp_path, capsys):
    assert main(["simulate", "99", "--into", str(tmp_path / "x")]) == 2
    assert "no lesson '99'; there is 00-start, 01-mini-gpt" in capsys.readouterr().err


def test_the_class_has_a_gradebook_of_its_own_that_knows_the_lesson(place):
    with Gradebook(f"sqlite:///{place / 'grading' / 'gradebook.db'}") as gradebook:
        assert [assignment.name for assignment in gradebook.assignments] == [LESSON]
        assert gradebook.find_assignment(LESSON).max_score == POINTS
        assert gradebook.students == []


def test_make_grade_simulates_grades_and_reports():
    dry = ["make", "--dry-run", "--assume-old=.venv/installed-grading", "grade", "LESSON=00-start"]
    said = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = [said.index(f"autograder {step} 00-start") for step in ("simulate", "grade", "report")]
    assert places == sorted(places)


# --- who is in it --------------------------------------------------------------------------------


def test_everyone_of_the_roster_is_expected_once_and_no_one_else(place):
    ids = [student.id for student in read_roster(place / "grading" / "roster.csv")]
    assert len(ids) == len(set(ids)) == COUNT
    expected = read_expected(place)
    assert sorted(ids) == list(expected)
    handed_in = {folder.name for folder in (place / "grading" / "submitted").iterdir()}
    missing = {name for name, said in expected.items() if said["state"] == State.MISSING}
    assert handed_in == set(ids) - missing


def test_every_kind_and_every_state_but_not_graded_occurs(place):
    expected = read_expected(place).values()
    assert {said["kind"] for said in expected} == {name_of(kind) for kind in KINDS}
    assert {said["state"] for said in expected} == set(State) - {State.NOT_GRADED}


def test_a_small_class_has_the_most_telling_kinds_one_of_each():
    assert draw_kinds(4, random.Random(1)) == list(KINDS)[:4]


def test_what_is_handed_in_again_is_of_those_who_hand_in_again(place):
    again = {folder.name for folder in (place / AGAIN).iterdir()}
    assert again == {name for name, said in read_expected(place).items() if "then" in said}
    for name in again:
        times = [
            (folder / name / LESSON / "timestamp.txt").read_text(encoding="utf-8")
            for folder in (place / "grading" / "submitted", place / AGAIN)
        ]
        assert times[0] < times[1]


def test_names_that_make_trouble_come_first_and_no_id_does():
    students = draw_students(60, random.Random(1))
    names = [(student.first_name, student.last_name) for student in students]
    assert all(name in names for name in TELLING)
    assert names.count(("Wei", "Zhang")) == 2
    assert all(student.id.isascii() and student.id.isalnum() for student in students)
    assert len({student.lms_user_id for student in students}) == 60


def test_the_roster_is_quoted_where_it_has_to_be(place):
    with (place / "grading" / "roster.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert {len(row) for row in rows} == {len(COLUMNS) + 1}
    assert "Lee, Jr." in {row[2] for row in rows}


# --- what is known of them -----------------------------------------------------------------------


def points_of(lesson: str, bug: str) -> Points:
    material = Material(lesson)
    (found,) = [known for known in material.bugs if known.name == bug]
    return points_with_bug(material.assignment, found)


def test_a_mistake_costs_what_it_is_known_to_lose():
    assert points_of(LESSON, "multiply_add_as_one") == Points(7, 7)  # both questions about FLOPs
    assert points_of(LESSON, "forgets_the_tokens") == Points(8, 8)  # one of them


def test_what_a_wrong_mask_loses_elsewhere_is_credited():
    assert points_of("03-kv-cache", "mask_sees_all") == Points(9, 9)


def test_a_mistake_costs_three_points_at_most_where_it_is_recognised():
    assert points_of("10-paged-cache", "values_for_keys") == Points(6, 7)


def test_a_mistake_that_is_remembered_may_cost_every_question_about_its_cell():
    assert points_of(LESSON, "remembered_by_rows") == Points(7, 9)


def test_without_an_answer_the_questions_about_it_are_lost_and_no_others():
    assignment = Material("03-kv-cache").assignment
    assert points_without(assignment, ["causal_mask"]) == Points(9, 9)
    assert points_without(assignment, ["KVCache", "forward_cached"]) == Points(5.5, 5.5)
    assert points_without(assignment, list(assignment.answers)) == Points(0, 0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kind_of_student_can_sit_in_every_lesson(folder):
    lesson = Material(folder)
    most = sum(question.points for question in lesson.assignment.questions)
    for kind in KINDS:
        desk = Desk(lesson, "Ada", random.Random(3))
        work = kind(desk)
        assert (work.points is None) == (work.state in (State.UNGRADABLE, State.MISSING)), kind
        if work.points:
            assert 0 <= work.points.at_least <= work.points.at_most <= most, kind
            assert list(work.files) == [desk.file]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_bounds_of_a_mistake_are_seldom_far_apart_and_say_that_it_costs_points(folder):
    lesson = Material(folder)
    known = [points_with_bug(lesson.assignment, bug) for bug in lesson.bugs]
    assert all(points.at_least < 10 for points in known)
    exact = [points for points in known if points.at_least == points.at_most]
    assert len(exact) > 0.7 * len(known)


# --- when it is graded ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graded(place, tmp_path_factory) -> CourseFolder:
    """The class, graded by nbgrader's own command."""
    copy = shutil.copytree(place, tmp_path_factory.mktemp("graded") / "class")
    course = CourseFolder(COURSE.read(LESSON), copy)
    course.autograde()
    return course


@needs_bubblewrap
@pytest.mark.slow
def test_nbgrader_gives_everyone_the_state_and_the_points_that_are_known(graded):
    expected = read_expected(graded.place)
    assert differences(expected, standings_in(graded.place)) == []
    # Who hands in again has a new grade when the class is graded again.
    submitted = graded.place / "grading" / "submitted"
    shutil.copytree(graded.place / AGAIN, submitted, dirs_exist_ok=True)
    again = after_handing_in_again(expected)
    assert differences(again, standings_in(graded.place)) != []
    graded.autograde()
    assert differences(again, standings_in(graded.place)) == []
