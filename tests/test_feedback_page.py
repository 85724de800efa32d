"""The page that a student gets begins with the questions: in words, with points and a message."""

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import nbformat
from browsing import IN_BROWSER, chromium, serious
from bs4 import BeautifulSoup
from hostile import html as hostile_html
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.assignment import read_assignment
from autograder.report.feedback import feedback_notebook
from autograder.report.feedback_page import FeedbackPage
from autograder.result import Answer, Outcome, Result
from lessons import COURSE

LESSON = COURSE.read("00-start")
QUESTIONS = read_assignment(LESSON.student).questions
TAGS = {"table", "thead", "tbody", "tr", "th", "td", "a"}
CONFIG = Config(GenerateFeedback={"exporter_class": FeedbackPage})


def head(*answers: Answer, by_hand: float | None = None, penalty: float = 0) -> list[list[str]]:
    """The rows of the table at the top of a page, as nbgrader writes it for these answers.

    Args:
        by_hand: points of the first question that were given in formgrader.
        penalty: for handing in late.
    """
    return [
        [part.get_text() for part in row.find_all(["th", "td"])]
        for row in soup(*answers, by_hand=by_hand, penalty=penalty).find(id="toc").find_all("tr")
    ]


def soup(*answers: Answer, by_hand: float | None = None, penalty: float = 0) -> BeautifulSoup:
    released = nbformat.read(LESSON.student, as_version=4)
    result = Result("start", Outcome.SCORE, "", "", answers)
    notebook = feedback_notebook(released.cells, released, result, "Judged.")
    scores = {answer.check: answer.points for answer in answers}
    if by_hand is not None:
        scores[answers[0].check] = by_hand
    for cell in notebook.cells:  # what nbgrader's GetGrades adds
        kind = cell.metadata.get("nbgrader", {})
        if kind.get("grade"):
            kind["score"] = scores[kind.grade_id]
    converter = GenerateFeedback(coursedir=CourseDirectory(), config=CONFIG)
    exporter = converter.exporter_class(parent=converter, config=converter.config)
    names = {"notebook": "start", "score": 1.0, "max_score": 10.0, "late_penalty": penalty}
    page, _ = exporter.from_notebook_node(
        notebook, {"nbgrader": names, "metadata": {"path": str(Path.cwd())}}
    )
    return BeautifulSoup(page, "html.parser")


def answers(*scores: float, message: str = "Said. And more.") -> list[Answer]:
    return [
        Answer(question.check, Outcome.SCORE, score, question.points, message)
        for question, score in zip_longest(QUESTIONS, scores, fillvalue=1)
    ]


def test_each_question_has_its_name_points_result_and_first_sentence():
    first, *others = answers(1, 0, 0.5, 1)
    first = replace(first, message="All 3.5 of x.... agree. Which ones?")
    assert head(first, *others) == [
        ["Question", "Points", "Result", "Message"],
        ["Flops of one dot product", "1 / 1", "PASS", "All 3.5 of x.... agree."],
        ["Flops of any product", "0 / 2", "FAIL", "Said."],
        ["Bytes of three matrices", "1 / 2", "PART", "The same."],
        ["Bytes follow the element size", "1 / 1", "PASS", "The same."],
        ["Rows come to one size", "2 / 2", "PASS", "The same."],
        ["Dtype and device are kept", "1 / 1", "PASS", "The same."],
        ["Any shape and layout will do", "1 / 1", "PASS", "The same."],
    ]


def test_each_question_leads_to_its_cell():
    page = soup(*answers(1, 0, 0, 1))
    links = [link["href"] for link in page.find(id="toc").find_all("a")]
    assert links == [f"#{question.check}" for question in QUESTIONS]
    assert all(page.find("a", attrs={"name": link[1:]}) for link in links)


def test_points_given_by_hand_and_penalties_are_those_of_the_gradebook():
    rows = head(*answers(0, 0, 0, 0), by_hand=1, penalty=1.5)
    assert rows[1][1:] == ["1 / 1", "PASS", "Points changed by hand. Said."]
    assert rows[-1] == ["Late submission", "-1.5", "", "Penalty for handing in late."]


def test_a_message_of_a_student_is_text():
    message = f"\u202e\x1b[31m{hostile_html('message')}" + "x" * 100_000
    page = soup(*answers(0, 0, 0, 0, message=message))
    top = page.find(id="toc")
    assert {tag.name for tag in top.find_all(True)} == TAGS
    shown = top.tbody.find_all("td")[2].get_text()
    assert shown.startswith("[31m<script>(window.gotcha")
    assert len(shown) < 400


@IN_BROWSER
def test_axe_finds_nothing_serious(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(str(soup(*answers(1, 0, 0.5, 1), penalty=1)), encoding="utf-8")
    with chromium() as browser:
        shown = browser.new_page()
        shown.goto(page.as_uri())
        assert serious(shown) == []
