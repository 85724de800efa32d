"""`autograder new` lays out a lesson that can be built, checked and graded as it stands."""

import subprocess
import sys

import pytest
from patience import PATIENCE

from autograder.authoring.new import lay_out
from autograder.authoring.source import LessonError
from lessons import lay_out_fixture_course

GRADED = """
from autograder.lessons import hidden_checks
from autograder.lessons.exhibits import bugs_of, variants_of
from autograder.lessons.assembly import assemble

check = hidden_checks("half_full")["doubles"]
for answer in [{}, *(variant.answer for variant in variants_of("half_full"))]:
    assert check.judge(assemble("half_full", answer), 1).score == 1
for bug in bugs_of("half_full"):
    verdict = check.judge(assemble("half_full", bug.answer), 1)
    assert verdict.score == 0 and verdict.message.endswith("How much is added to x?")
print("graded")
"""


@pytest.fixture
def course(tmp_path):
    return lay_out_fixture_course(tmp_path)


def run(course, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=course.root, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_is_laid_out_is_built_and_graded(course):
    run(course, "-m", "autograder", "new", "08-half-full", "Half full")
    said = run(course, "-m", "autograder", "build")
    assert "08-half-full: exported half_full.py, recorded half_full.json, executed in" in said
    assert "twice 21 is 42." in (course.root / "lessons/08-half-full/half_full.ipynb").read_text()
    assert "[08 · Half full](lessons/08-half-full/half_full.ipynb)" in course.readme.read_text()
    assert run(course, "-c", GRADED) == "graded\n"


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("8-half-full", "named like 08-sliding-window, not '8-half-full'"),
        ("08-Half-Full", "named like"),
        ("08_half_full", "named like"),
        ("00-half-full", "there is 00-tiny already"),
        ("02-tiny", "there is 00-tiny already"),
        ("08-cache", "course/checks/cache.py is there already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(folder, why, course):
    (course.root / "course/checks/cache.py").touch()
    before = sorted(course.root.rglob("*"))
    with pytest.raises(LessonError, match=why):
        lay_out(course, folder, "Half full")
    assert sorted(course.root.rglob("*")) == before
