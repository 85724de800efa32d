"""Being late costs what is configured, counted from the due date and what the roster grants."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confined import needs_bubblewrap
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from submissions import solved

from autograder.classroom.course import Lesson, open_course
from autograder.classroom.due_dates import write_penalties
from lessons import COURSE, ROOT

LESSON, MODULE = "00-start", "start"
DUE = datetime(2026, 12, 1, 17, 0, tzinfo=UTC)
MOST = 10
PERCENT = ("--LatePenalty.percent_a_day=20",)
GRACE = (*PERCENT, "--LatePenalty.grace_minutes=15")
CAPPED = (*PERCENT, "--LatePenalty.largest_percent=50")
STAMP = "%Y-%m-%d %H:%M:%S UTC"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass
class Graded:
    """A course whose gradebook holds one student's submission."""

    place: Path

    def gradebook(self) -> Gradebook:
        return Gradebook(f"sqlite:///{self.place / 'grading' / 'gradebook.db'}")

    def lesson(self, *options: str) -> Lesson:
        return open_course(options).lesson(LESSON)

    def hand_in(self, late: timedelta | None, points: float = MOST) -> None:
        """Write the time that a submission has, and its points; None for no time."""
        folder = self.place / "grading" / "submitted" / "ada" / LESSON
        folder.mkdir(parents=True, exist_ok=True)
        if late is None:
            (folder / "timestamp.txt").unlink(missing_ok=True)
        else:
            (folder / "timestamp.txt").write_text((DUE + late).strftime(STAMP))
        with self.gradebook() as gradebook:
            gradebook.find_grade("question", MODULE, LESSON, "ada").auto_score = points
            gradebook.db.commit()

    def due(self, due: datetime | None) -> None:
        with self.gradebook() as gradebook:
            gradebook.update_or_create_assignment(LESSON, duedate=due)

    def grant(self, extension: str, column: str = "extension") -> None:
        roster = self.place / "grading" / "roster.csv"
        roster.write_text(f"id,{column}\nada,{extension}\n")

    def penalty(self, *options: str) -> float:
        """The penalty that is in the gradebook when it was written."""
        write_penalties(self.lesson(*options))
        with self.gradebook() as gradebook:
            return gradebook.find_submission(LESSON, "ada").late_submission_penalty

    def seconds_late(self) -> float:
        with self.gradebook() as gradebook:
            return gradebook.find_submission(LESSON, "ada").total_seconds_late


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", place)
    shutil.copytree(ROOT / "lessons" / LESSON, place / "lessons" / LESSON)
    (place / "grading").mkdir()
    with Graded(place).gradebook() as gradebook:
        gradebook.add_assignment(LESSON, duedate=DUE)
        gradebook.add_notebook(MODULE, LESSON)
        gradebook.add_grade_cell("question", MODULE, LESSON, max_score=MOST, cell_type="code")
        gradebook.add_student("ada")
        gradebook.add_submission(LESSON, "ada")
    return place


@pytest.fixture
def course(template, tmp_path, monkeypatch) -> Graded:
    place = tmp_path / "course"
    shutil.copytree(template, place)
    monkeypatch.chdir(place)
    return Graded(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "options", "penalty"),
    [
        (-DAY, PERCENT, 0),
        (0 * DAY, PERCENT, 0),
        (timedelta(seconds=1), PERCENT, 2),
        (DAY, PERCENT, 2),
        (1.5 * DAY, PERCENT, 4),
        (100 * DAY, PERCENT, 10),
        (15 * MINUTE, GRACE, 0),
        (15 * MINUTE + timedelta(seconds=1), GRACE, 2),
        (DAY + 15 * MINUTE, GRACE, 2),
        (2 * DAY, CAPPED, 4),
        (3 * DAY, CAPPED, 5),
        (None, PERCENT, 0),
        (3 * DAY, (), 0),
        (3 * DAY, ("--LateSubmissionPlugin.penalty_method=zero",), 10),
    ],
)
def test_a_penalty_counts_days_begun(course, late, options, penalty):
    course.hand_in(late)
    assert course.penalty(*options) == pytest.approx(penalty)


def test_late_days_of_the_term_are_used_up_in_the_lessons_order(course):
    course.hand_in(1.5 * DAY)
    assert course.penalty(*PERCENT, "--LatePenalty.late_days=3") == 0
    with course.gradebook() as gradebook:
        gradebook.add_assignment("00-before", duedate=DUE)
        gradebook.add_submission("00-before", "ada", timestamp=DUE.replace(tzinfo=None) + 1.5 * DAY)
    assert course.penalty(*PERCENT, "--LatePenalty.late_days=3") == pytest.approx(2)
    assert course.penalty(*PERCENT, "--LatePenalty.late_days=2") == pytest.approx(4)


@pytest.mark.parametrize(("points", "penalty"), [(0, 0), (1.5, 1.5), (7, 4)])
def test_a_penalty_is_of_the_lessons_points_and_never_more_than_those_reached(
    course, points, penalty
):
    course.hand_in(1.5 * DAY, points)
    assert course.penalty(*PERCENT) == pytest.approx(penalty)


@pytest.mark.parametrize(
    ("granted", "column", "penalty", "seconds"),
    [
        ("1", "extension", 2, 12 * 3600),
        ("1.5", "extension", 0, 0),
        ("2", f"extension {LESSON}", 0, 0),
        ("2", "extension 03-kv-cache", 4, 36 * 3600),
        ("2026-12-02 17:00", "extension", 2, 12 * 3600),
        ("2026-12-03T06:00+01:00", "extension", 0, 0),
        ("2026-12-02", "extension", 2, 5 * 3600),
        ("2026-12-03", "extension", 0, 0),
        ("2026-11-01", "extension", 4, 36 * 3600),
        ("", "extension", 4, 36 * 3600),
    ],
)
def test_an_extension_puts_the_due_date_off(course, granted, column, penalty, seconds):
    course.hand_in(1.5 * DAY)
    course.grant(granted, column)
    assert course.penalty(*PERCENT) == pytest.approx(penalty)
    assert course.seconds_late() == seconds


def test_what_was_granted_counts_at_once_and_so_does_taking_it_back(course):
    course.hand_in(1.5 * DAY)
    course.grant("")
    assert write_penalties(course.lesson(*PERCENT)) == ["ada"]
    assert write_penalties(course.lesson(*PERCENT)) == []
    course.grant("2")
    assert write_penalties(course.lesson(*PERCENT)) == ["ada"]
    assert course.penalty(*PERCENT) == 0
    course.grant("")
    assert course.penalty(*PERCENT) == pytest.approx(4)


def test_an_extension_from_elsewhere_stays_where_the_roster_does_not_know_the_student(course):
    course.hand_in(1.5 * DAY)
    (course.place / "grading" / "roster.csv").write_text("id\nben\n")
    with course.gradebook() as gradebook:
        gradebook.grant_extension(LESSON, "ada", days=2)
    assert course.penalty(*PERCENT) == 0


def test_without_a_due_date_nobody_is_late(course):
    course.hand_in(1.5 * DAY)
    course.grant("1")
    assert course.penalty(*PERCENT) == pytest.approx(2)
    course.due(None)  # nbgrader could not add an extension to no date
    assert course.penalty(*PERCENT) == 0
    assert course.seconds_late() == 0


def test_a_time_that_is_taken_away_costs_nothing_any_more(course):
    course.hand_in(1.5 * DAY)
    assert course.penalty(*PERCENT) == pytest.approx(4)
    course.hand_in(None)
    assert course.penalty(*PERCENT) == 0


@needs_bubblewrap
@pytest.mark.slow
def test_nbgraders_own_commands_take_it_all_in(tmp_path):
    """From the due date by `nbgrader db` to the penalties in the gradebook, by `nbgrader autograde`."""
    lesson = COURSE.read(LESSON)
    course = CourseFolder.lay_out(lesson, tmp_path)
    due = "--duedate=2026-12-01 18:00 Europe/Berlin"  # which is DUE
    assert course.run("db", "assignment", "add", LESSON, due).returncode == 0
    for student, late in {"ada": -HOUR, "ben": HOUR, "cleo": 1.5 * DAY}.items():
        stamp = course.hand_in(student, solved(lesson)).with_name("timestamp.txt")
        stamp.write_text((DUE + late).strftime(STAMP))
    roster = tmp_path / "grading" / "roster.csv"
    roster.write_text("id,extension\nada,\nben,\ncleo,1\n")
    done = course.autograde(*PERCENT)
    assert done.returncode == 0, done.stderr
    assert penalties(course) == {"ada": 0, "ben": 2, "cleo": 2}
    roster.write_text("id,extension\nada,\nben,2026-12-01 18:00\ncleo,\n")
    assert course.autograde("--force", *PERCENT).returncode == 0
    assert penalties(course) == {"ada": 0, "ben": 0, "cleo": 4}


def penalties(course: CourseFolder) -> dict[str, float]:
    with Gradebook(f"sqlite:///{course.place / 'grading' / 'gradebook.db'}") as gradebook:
        found = gradebook.assignment_submissions(LESSON)
        return {one.student.id: one.late_submission_penalty for one in found}
