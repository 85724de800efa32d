"""A cell for prose has its points by hand, beside those that the judge gives."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace

import nbformat
import pytest
from confined import needs_bubblewrap
from nbgrader.api import Gradebook
from nbgrader_course import CourseFolder
from submissions import released, solved

from autograder.authoring.leaks import leaks, secrets_of
from autograder.authoring.notebook import write_notebook
from autograder.authoring.released import released_text
from autograder.authoring.source import Cell
from autograder.report.feedback import feedback_notebook
from autograder.result import Outcome, Result
from lessons import COURSE, ROOT

NAME, MODEL = "why_it_waits", "One byte arrives while the core could multiply several times."
LESSON = COURSE.read("00-start")
LESSON = replace(
    LESSON, cells=(*LESSON.cells, Cell(99, "markdown", MODEL, grade_id=NAME, points=2))
)
COMMENT = "How many bytes, how many operations?"
WORDS = "It waits for <b>memory</b>. <script>alert(1)</script>"


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> CourseFolder:
    """Three students: one wrote something, one left the cell as it was, one deleted it."""
    folder = CourseFolder.lay_out(LESSON, tmp_path_factory.mktemp("course"))
    nbformat.write(
        write_notebook(LESSON), folder.place / "solutions" / LESSON.folder / LESSON.solved.name
    )
    assert folder.run("generate_assignment", LESSON.folder, "--force").returncode == 0
    for student, words in (("ada", WORDS), ("ben", None), ("cleo", "")):
        work = solved(LESSON)
        cell = next(cell for cell in work.cells if cell.id == NAME)
        cell.source = cell.source if words is None else words
        if words == "":
            work.cells.remove(cell)
        folder.hand_in(student, work)
    said = autograder(folder, "grade", LESSON.folder)
    assert "written answers to be graded by hand in formgrader (1): ada\n" in f"{said}\n"
    return folder


def autograder(folder: CourseFolder, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "autograder", *arguments],
        cwd=folder.place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def give(folder: CourseFolder, student: str, points: float) -> None:
    """Do what formgrader does when points and a comment are typed into its fields."""
    with Gradebook(f"sqlite:///{folder.place / 'grading' / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade(NAME, LESSON.module, LESSON.folder, student)
        grade.manual_score, grade.needs_manual_grade = points, False
        comment = gradebook.find_comment(NAME, LESSON.module, LESSON.folder, student)
        comment.manual_comment = COMMENT
        gradebook.db.commit()


@needs_bubblewrap
@pytest.mark.slow
def test_points_given_by_hand_stand_beside_the_judge_s_and_travel_to_the_sheet(graded):
    assert graded.points("ada")[NAME] == graded.points("cleo")[NAME] == 0
    give(graded, "ada", 1.5)
    table = json.loads(autograder(graded, "grade", LESSON.folder, "--judge-again", "--json"))
    now = {row["id"]: row for row in table["students"]}
    assert {name: row["points"] for name, row in now.items()} == {
        "ada": 11.5,
        "ben": 10,
        "cleo": 10,
    }
    assert now["ada"]["unread"] == 1  # graded anew, nbgrader asks to look at it again
    give(graded, "ada", 1.5)
    assert "11.5 of 12 points (1.5 for written answers)" in autograder(
        graded, "why", "ada", LESSON.folder
    )
    autograder(graded, "export", LESSON.folder)
    with open(graded.place / "grades.csv", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert (rows["ada"]["score"], rows["ada"]["most"]) == ("11.5", "12")


@needs_bubblewrap
@pytest.mark.slow
def test_formgrader_and_feedback_show_the_prose_without_its_scripts(graded):
    named = {
        cell.metadata.nbgrader.grade_id: cell
        for cell in graded.graded("ada").cells
        if "nbgrader" in cell.metadata
    }
    cell = named[NAME]
    assert (cell.cell_type, cell.metadata.nbgrader.solution) == ("markdown", True)
    assert "memory" in cell.source
    assert "<script" not in cell.source
    give(graded, "ada", 1.5)
    assert graded.run("generate_feedback", LESSON.folder, "--force").returncode == 0
    text = graded.feedback_text("ada")
    assert "Why it waits" in text
    assert "A written answer: its points are given by hand." in text
    assert COMMENT in text


@pytest.mark.parametrize("kind", [[], {}, None, 3])
def test_a_cell_of_no_known_kind_is_shown_like_any_other(kind):
    sheet = nbformat.reads(released(LESSON), as_version=4)
    result = Result("start", Outcome.SCORE, "", "", ())
    shown = feedback_notebook([{"cell_type": kind, "source": "x"}], sheet, result, "")
    assert "x" in {cell.source for cell in shown.cells}


def test_students_get_no_model_answer():
    assert MODEL not in released(LESSON)
    secrets = secrets_of([LESSON])
    assert leaks({"cells": [MODEL]}, secrets)
    assert not leaks(nbformat.reads(released(LESSON), as_version=4), secrets)
    assert NAME not in released_text(LESSON, released(LESSON))
