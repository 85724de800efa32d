"""nbgrader's own commands grade every lesson: release, three students, feedback, the gradebook.

`ada` wrote every answer, `ben` none, and `cleo` the first ones only.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass

import pytest
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from submissions import answers, submission

from autograder.assignment import in_words
from autograder.authoring.notebook import write_notebook
from autograder.authoring.source import POINTS, Cell, Lesson
from autograder.lessons import find
from lessons import COURSE, FOLDERS, ROOT

pytestmark = pytest.mark.sampled

STUDENTS = ("ada", "ben", "cleo")


def names_defined(cell: Cell) -> set[str]:
    """The functions and classes that a solution cell asks for."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name for node in ast.parse(cell.source).body if isinstance(node, kinds)}


def points_by_check(lesson: Lesson, n_written: int) -> dict[str, float]:
    """What a student earns, check by check, who wrote the first n_written of the answers."""
    written = [names_defined(cell) for cell in lesson.cells if cell.solution]
    missing = set().union(*written[n_written:])
    return {
        cell.grade_id: 0
        if missing & set(find(f"{lesson.module}.{cell.grade_id}").needs)
        else points
        for cell in lesson.cells
        if (points := cell.points)
    }


def written_in_part(lesson: Lesson) -> int:
    """How many answers make a student who is neither at 0 points nor at 10."""
    n_answers = sum(cell.solution for cell in lesson.cells)
    middling = [
        n for n in range(1, n_answers) if 0 < sum(points_by_check(lesson, n).values()) < POINTS
    ]
    return middling[len(middling) // 2]


@dataclass(frozen=True)
class Graded:
    """A graded lesson, and how many answers each student wrote."""

    course: CourseFolder
    n_written: dict[str, int]

    @property
    def lesson(self) -> Lesson:
        return self.course.lesson

    def points(self, student: str) -> dict[str, float]:
        return self.course.points(student)


@pytest.fixture(scope="module", params=FOLDERS)
def course(request, tmp_path_factory) -> CourseFolder:
    lesson = COURSE.read(request.param)
    return CourseFolder.lay_out(lesson, tmp_path_factory.mktemp(lesson.folder))


@pytest.fixture(scope="module")
def graded(course) -> Graded:
    written = answers(course.lesson)
    n_written = dict(zip(STUDENTS, (len(written), 0, written_in_part(course.lesson)), strict=True))
    for student, n in n_written.items():
        course.hand_in(student, submission(course.lesson, dict(list(written.items())[:n])))
    for done in (course.autograde(), course.run("generate_feedback", course.lesson.folder)):
        assert done.returncode == 0, done.stderr
    return Graded(course, n_written)


def hidden_lines(lesson: Lesson) -> set[str]:
    """The lines of the hidden tests, as the gradebook keeps them."""
    found = set()
    for cell in write_notebook(lesson).cells:
        if "points" in cell.metadata.get("nbgrader", {}):
            _, _, rest = cell.source.partition("### BEGIN HIDDEN TESTS\n")
            hidden, _, _ = rest.partition("### END HIDDEN TESTS")
            found |= {line.strip() for line in hidden.splitlines() if line.strip()}
    assert found
    return found


def test_the_stock_command_releases_the_committed_notebook(course):
    released = course.place / "lessons" / course.lesson.folder
    assert [path.name for path in released.iterdir()] == [course.lesson.student.name]
    committed = course.lesson.student.read_text(encoding="utf-8")
    assert (released / course.lesson.student.name).read_text(encoding="utf-8") == committed


@needs_bubblewrap
def test_the_solved_notebook_gets_every_point(graded):
    points = graded.points("ada")
    assert points == points_by_check(graded.lesson, graded.n_written["ada"])
    assert sum(points.values()) == POINTS


@needs_bubblewrap
def test_the_untouched_notebook_gets_none(graded):
    assert set(graded.points("ben").values()) == {0}


@needs_bubblewrap
def test_a_notebook_that_is_done_in_part_gets_the_points_of_that_part(graded):
    points = graded.points("cleo")
    assert points == points_by_check(graded.lesson, graded.n_written["cleo"])
    assert 0 < sum(points.values()) < POINTS


@needs_bubblewrap
@pytest.mark.parametrize("student", STUDENTS)
def test_feedback_tells_points_and_messages_and_no_hidden_test(graded, student):
    feedback = graded.course.feedback_text(student)
    points = graded.points(student)
    assert f"Score: {sum(points.values()):.1f} / {POINTS:.1f}" in feedback
    marks = [line[:6] for line in feedback.splitlines() if line.startswith(("PASS  ", "FAIL  "))]
    assert marks == ["PASS  " if score else "FAIL  " for score in points.values()]
    assert "Judged in a sandbox" in feedback
    assert "Test cell" not in feedback
    assert all(in_words(check) in feedback for check in points)
    assert all(f"checks.{check}(" in feedback for check in points)
    assert [line for line in hidden_lines(graded.lesson) if line in feedback] == []
    assert "autograder" not in feedback


def test_grading_needs_nothing_of_the_extras_for_authors():
    """An instructor who grades has installed `.[grading]`; the steps must load without the rest."""
    program = (
        "import sys, nbgrader.apps\n"
        "before = set(sys.modules)\n"
        "import autograder.nbgrader_steps, autograder.lessons, autograder.sandbox.launch\n"
        "import autograder.report.feedback, autograder.secret, autograder.classroom.grading\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert {"autograder", "nh3"} <= set(done.stdout.split())
    assert not {"jupytext", "nbclient", "ruff", "yaml", "torch"} & set(done.stdout.split())
