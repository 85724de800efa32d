"""A class that is judged in parts, on machines that share nothing, gets what one run gives."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slurm
import yaml
from changing import lay_out_another_judge
from confined import needs_bubblewrap
from nbgrader_course import CourseFolder
from submissions import answers, solved, submission

from lessons import COURSE, ROOT

LESSON = COURSE.read("00-start")
EXAMPLES = ROOT / "docs" / "examples"
SLURM, MATRIX = EXAMPLES / "grade.slurm", EXAMPLES / "grade-matrix.yml"
PARTS = 3
SECRET = b"the same secret on all machines."
JUDGED = ("ada", "ben", "cleo", "dan", "eve")


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory) -> CourseFolder:
    """A class of which nothing was judged yet."""
    folder = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("class"))
    folder.hand_in("ada", solved(LESSON, "name = 'ada'"))
    folder.hand_in("ben", solved(LESSON, "name = 'ben'"))
    folder.hand_in("cleo", submission(LESSON, dict(list(answers(LESSON).items())[:1])))
    folder.hand_in("dan", submission(LESSON, {}))
    folder.hand_in("eve", b"no notebook")
    named = folder.hand_in("kim", solved(LESSON))
    named.rename(named.with_name("start (1).ipynb"))
    write_secret(folder, SECRET)
    return folder


def write_secret(folder: CourseFolder, secret: bytes) -> None:
    path = folder.place / "grading" / "secret"
    path.touch(0o600)
    path.write_bytes(secret)


def copy(folder: CourseFolder, place: Path) -> CourseFolder:
    shutil.copytree(folder.place, place)
    return CourseFolder(LESSON, place)


def autograder(
    folder: CourseFolder, *arguments: str, code: Path = ROOT
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "autograder", *arguments],
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
    )


def judge_part(folder: CourseFolder, number: int, code: Path = ROOT) -> set[str]:
    """Judge a part in a copy of the course; the names of the results that it has then."""
    done = autograder(folder, "grade", LESSON.folder, "--shard", f"{number}/{PARTS}", code=code)
    assert done.returncode == 0, done.stderr
    return results(folder)


def results(folder: CourseFolder) -> set[str]:
    return {path.name for path in (folder.place / "grading" / "results").rglob("*.json")}


def merge(folder: CourseFolder, parts: list[CourseFolder]) -> subprocess.CompletedProcess:
    """Copy the results of all parts into one folder, and grade by them alone."""
    for part in parts:
        there = folder.place / "grading" / "results"
        shutil.copytree(part.place / "grading" / "results", there, dirs_exist_ok=True)
    return autograder(folder, "grade", LESSON.folder, "--kept-only", "--json")


def states(done: subprocess.CompletedProcess) -> dict[str, str]:
    assert done.stdout, done.stderr
    return {found["id"]: found["state"] for found in json.loads(done.stdout)["students"]}


@pytest.fixture(scope="module")
def parts(handed_in, tmp_path_factory) -> list[CourseFolder]:
    """Three copies of the course, in each of which a part was judged."""
    place = tmp_path_factory.mktemp("parts")
    folders = [copy(handed_in, place / str(number)) for number in range(1, PARTS + 1)]
    for number, folder in enumerate(folders, start=1):
        (folder.place / "grading" / "gradebook.db").unlink()
        judge_part(folder, number)
    return folders


@pytest.mark.slow
@needs_bubblewrap
def test_parts_that_were_judged_apart_give_what_one_run_gives(handed_in, parts, tmp_path):
    whole, merged = copy(handed_in, tmp_path / "whole"), copy(handed_in, tmp_path / "merged")
    at_once = autograder(whole, "grade", LESSON.folder, "--json")
    in_parts = merge(merged, parts)
    assert json.loads(in_parts.stdout) == json.loads(at_once.stdout)
    assert in_parts.returncode == at_once.returncode == 1  # kim's file has another name
    found = [results(part) for part in parts]
    assert sum(map(len, found)) == len(JUDGED)  # each judged once
    assert set.union(*found) == results(whole) == results(merged)
    for folder in (whole, merged):
        autograder(folder, "export")
    assert (merged.place / "grades.csv").read_bytes() == (whole.place / "grades.csv").read_bytes()
    assert not any((part.place / "grading" / "gradebook.db").exists() for part in parts)


def with_another_secret(folder: CourseFolder, _: Path) -> Path:
    write_secret(folder, b"another secret on that machine..")
    return ROOT


def with_another_version(_: CourseFolder, place: Path) -> Path:
    lay_out_another_judge(place)
    return place


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize("change", [with_another_secret, with_another_version])
def test_a_part_by_another_grader_does_not_count_and_it_is_said_who_is_missing(
    change, handed_in, parts, tmp_path
):
    other = copy(handed_in, tmp_path / "other")
    judge_part(other, 2, code=change(other, tmp_path / "code"))
    merged = copy(handed_in, tmp_path / "merged")
    done = merge(merged, [parts[0], other, parts[2]])
    assert done.returncode == 1
    stand = states(done)
    not_graded = {student for student in JUDGED if stand[student] == "not graded"}
    assert len(not_graded) == len(results(parts[1])) > 0
    again = autograder(merged, "grade", LESSON.folder, "--kept-only")
    assert f"not graded ({len(not_graded)}): {', '.join(sorted(not_graded))}" in again.stdout
    assert "not graded" not in states(merge(merged, parts)).values()  # by the right one they are


# --- the examples in docs/ -----------------------------------------------------------------------


def steps(job: str) -> list[dict]:
    return yaml.safe_load(MATRIX.read_text(encoding="utf-8"))["jobs"][job]["steps"]


def in_bash(script: str, folder: CourseFolder, **environment: str) -> subprocess.CompletedProcess:
    """Run a script as GitHub does, with the `autograder` of this environment."""
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script, "script", LESSON.folder],
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def test_the_examples_are_scripts_that_bash_can_read():
    scripts = [SLURM.read_text(encoding="utf-8")]
    scripts += [step["run"] for job in ("judge", "merge") for step in steps(job) if "run" in step]
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), script


def test_the_matrix_takes_no_text_of_others_into_a_script():
    for job in ("judge", "merge"):
        for step in steps(job):
            inside = re.findall(r"\$\{\{\s*(\S+?)\s*\}\}", step.get("run", ""))
            assert set(inside) <= {"matrix.part", "strategy.job-total"}, step


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.skipif(
    not slurm.installed(),
    reason="needs Slurm: apt-get install munge slurm-client slurmctld slurmd",
)
def test_slurm_judges_a_class_in_as_many_tasks_as_the_array_has(handed_in, tmp_path):
    folder = copy(handed_in, tmp_path / "course")
    (folder.place / ".venv").symlink_to(Path(sys.prefix), target_is_directory=True)
    with slurm.cluster() as cluster:
        done = cluster.submit(folder.place, "--array=1-2", str(SLURM), LESSON.folder)
    logs = {log.name: log.read_text() for log in folder.place.glob("grading/slurm-*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    assert len(logs) == 2
    assert len(results(folder)) == len(JUDGED)
    stand = states(autograder(folder, "grade", LESSON.folder, "--kept-only", "--json"))
    assert {name for name, state in stand.items() if state == "graded"} == {"ada", "ben", "cleo"}


@pytest.mark.parametrize(
    ("task", "count", "more", "part"), [("2", "8", [], "2/8"), ("3", "1", ["8"], "3/8")]
)
def test_a_task_that_is_submitted_again_judges_its_own_part(tmp_path, task, count, more, part):
    asked = tmp_path / ".venv" / "bin" / "autograder"
    asked.parent.mkdir(parents=True)
    asked.write_text('#!/bin/sh\necho "$@"\n')
    asked.chmod(0o755)
    done = subprocess.run(
        ["bash", SLURM, LESSON.folder, *more],
        cwd=tmp_path,
        env={**os.environ, "SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_COUNT": count},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[-2:] == ["--shard", part]


@needs_bubblewrap
@pytest.mark.slow
def test_the_matrix_judges_a_class_in_its_parts_and_writes_the_grades(handed_in, tmp_path):
    numbers = yaml.safe_load(MATRIX.read_text(encoding="utf-8"))["jobs"]["judge"]["strategy"]
    numbers = numbers["matrix"]["part"]
    secret = base64.b64encode(SECRET).decode()
    parts = [copy(handed_in, tmp_path / str(number)) for number in numbers]
    for number, folder in zip(numbers, parts, strict=True):
        run_steps("judge", folder, secret, {"matrix.part": number, "strategy.job-total": 4})
    merged = copy(handed_in, tmp_path / "merged")
    for part in parts:
        if (there := part.place / "grading" / "results").exists():
            shutil.copytree(there, merged.place / "grading" / "results", dirs_exist_ok=True)
    run_steps("merge", merged, secret, {})
    table = (merged.place / "grades.csv").read_text(encoding="utf-8-sig")
    assert re.search(r"^ada,.*,graded,10,", table, re.MULTILINE)
    assert "not graded" not in table


def run_steps(job: str, folder: CourseFolder, secret: str, values: dict[str, int]) -> None:
    """Run the steps of a job that are the course's own; those that install are none."""
    (folder.place / "grading" / "secret").unlink()
    for step in steps(job):
        script = step.get("run", "pip install")
        if "pip install" in script:
            continue
        for name, value in values.items():
            script = script.replace(f"${{{{ {name} }}}}", str(value))
        done = in_bash(script, folder, LESSON=LESSON.folder, SECRET=secret)
        assert done.returncode == 0, done.stderr
