"""When the machine is at fault: no sandbox, no process, no grade; and what grading without one says."""

import os
import shutil
import sys

import pytest
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from submissions import solved

from autograder.authoring.source import POINTS
from autograder.secret import read_secret
from lessons import COURSE

pytestmark = pytest.mark.slow

LESSON = COURSE.read("00-start")
# Put in front of nbgrader's configuration: the machine fails for one student, every time.
UNLUCKY = """
from contextlib import nullcontext

from autograder.sandbox import launch
from autograder.sandbox.child import InfraError

well = launch.Launcher.start_for

def start_for(self, submission):
    def fail():
        raise InfraError("no process today")
    return nullcontext(fail) if submission.parent.name == "bob" else well(self, submission)

launch.Launcher.start_for = start_for
"""


@pytest.fixture
def course(tmp_path) -> CourseFolder:
    """Two students who did all the work, each their own: what is the same file is judged once."""
    course = CourseFolder.lay_out(LESSON, tmp_path)
    for student in ("ann", "bob"):
        course.hand_in(student, solved(LESSON, f"name = {student!r}"))
    return course


def test_without_a_sandbox_nothing_is_graded_and_the_way_out_is_told(course, no_bubblewrap):
    done = course.autograde(environment=no_bubblewrap)
    assert done.returncode == 1
    assert "Nothing was graded." in done.stderr
    assert "apt-get install bubblewrap" in done.stderr
    assert "--Judge.unsafe_no_sandbox=True" in done.stderr
    assert "Traceback" not in done.stderr
    assert course.points("ann") is None
    assert not (course.place / "grading" / "autograded").exists()


def test_no_sandbox_is_had_by_name_alone_and_stands_in_every_report(course, no_bubblewrap):
    done = course.autograde("--Judge.unsafe_no_sandbox=True", environment=no_bubblewrap)
    assert done.returncode == 0, done.stderr
    assert "No sandbox, as was asked for" in done.stderr
    assert sum(course.points("ann").values()) == POINTS
    assert course.run("generate_feedback", LESSON.folder).returncode == 0
    assert "WITHOUT A SANDBOX" in course.feedback_text("ann")


@needs_bubblewrap
def test_a_machine_that_fails_gives_no_grade_and_takes_none_away(course):
    config = course.place / "nbgrader_config.py"
    well = config.read_text(encoding="utf-8")
    config.write_text(UNLUCKY + well, encoding="utf-8")
    done = course.autograde()
    assert done.returncode == 1
    assert "bob: INFRA_ERROR, no grade; grade again. no process today" in done.stderr
    assert course.points("bob") is None
    assert sum(course.points("ann").values()) == POINTS

    config.write_text(well, encoding="utf-8")
    assert course.autograde().returncode == 0
    assert sum(course.points("bob").values()) == POINTS

    config.write_text(UNLUCKY + well, encoding="utf-8")
    assert course.autograde("--force", "--Judge.judge_again=True").returncode == 1
    assert sum(course.points("bob").values()) == POINTS


def test_a_lesson_that_was_not_released_is_refused(course):
    shutil.rmtree(course.place / "lessons")
    done = course.autograde()
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "generate_assignment comes first" in done.stderr


# --- the secret ----------------------------------------------------------------------------------


def test_a_secret_is_made_once(tmp_path):
    first = read_secret(tmp_path / "grading" / "secret")
    assert first == read_secret(tmp_path / "grading" / "secret")
    assert len(first) == 32
    assert first != read_secret(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grading", "other"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_secret_that_others_can_read_is_none(tmp_path):
    secret = tmp_path / "secret"
    read_secret(secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    os.chmod(secret, 0o640)
    with pytest.raises(PermissionError, match=r"mode 640.*chmod 600"):
        read_secret(secret)


def test_a_secret_is_long(tmp_path):
    (tmp_path / "secret").touch(0o600)
    with pytest.raises(ValueError, match="0 bytes; a secret has 32"):
        read_secret(tmp_path / "secret")
