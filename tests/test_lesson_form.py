"""What every lesson has in common: its size, how it opens and ends, what it asks for."""

import ast
import importlib
import re
from itertools import pairwise

import pytest

from autograder.authoring.source import Lesson, headings
from course.checks.check import checks_in
from lessons import COURSE, FOLDERS

MOST_WORDS, CELLS = 1650, range(25, 46)
"""1,500 words are the goal. Beyond them, only what a reader would misunderstand without."""


@pytest.fixture(params=FOLDERS)
def lesson(request) -> Lesson:
    return COURSE.read(request.param)


def markdown(lesson: Lesson) -> list[str]:
    return [cell.source for cell in lesson.cells if cell.kind == "markdown"]


def words(text: str) -> list[str]:
    """What is read: no tags, no addresses, no table rules, no formula's punctuation."""
    text = re.sub(r"\{\{([^={}]+)=[^{}]*\}\}", r"\1", text)
    text = re.sub(r"<[^>]+>|\]\([^)]*\)|\{\{\w+\}\}", " ", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def unbalanced_folds(text: str) -> bool:
    tags = re.findall(r"<(/?)(?:details|summary)\b", text)
    opened = [len(re.findall(rf"<{tag}\b", text)) for tag in ("details", "summary")]
    closed = [len(re.findall(rf"</{tag}>", text)) for tag in ("details", "summary")]
    return bool(tags) and (opened != closed or len(set(opened)) != 1)


def test_it_has_25_to_45_cells(lesson):
    assert len(lesson.cells) in CELLS


def test_it_has_at_most_1650_words(lesson):
    n_words = len(words("\n".join(markdown(lesson))))
    assert n_words <= MOST_WORDS


def test_it_has_one_title(lesson):
    assert len([heading for cell in lesson.cells for heading in headings(cell)]) == 1


def test_its_headings_go_down_one_level_at_a_time(lesson):
    text = "\n".join(markdown(lesson))
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_its_checks_ask_for_all_that_students_write_and_for_nothing_else(lesson):
    def defined(solution: bool) -> set[str]:
        cells = [cell for cell in lesson.answer_cells if cell.solution is solution]
        nodes = [node for cell in cells for node in ast.parse(cell.source).body]
        return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}

    checks = checks_in(importlib.import_module(f"course.checks.{lesson.module}")).values()
    given = defined(solution=False)  # that calls what students write, such as forward_ragged
    assert defined(solution=True) == {name for check in checks for name in check.needs} - given


def test_it_opens_with_the_time_it_takes_and_a_question_to_predict(lesson):
    first_code = next(i for i, cell in enumerate(lesson.cells) if cell.points or cell.solution)
    opening = "\n".join(cell.source for cell in lesson.cells[:first_code])
    assert re.search(r"\d+ minutes", opening)
    assert re.search(r"\bpredict\b", opening, re.IGNORECASE)


def test_it_ends_with_questions_to_check_oneself_and_a_bridge_to_the_next_lesson(lesson):
    prose = markdown(lesson)
    assert re.search(r"^#+ .*check yourself", "\n".join(prose), re.IGNORECASE | re.MULTILINE)
    last = lesson.cells[-1]
    assert last.kind == "markdown"
    if lesson.folder == FOLDERS[-1]:
        assert "This is the last lesson." in "\n".join(prose)
    else:
        assert re.search(rf"\b0?{int(lesson.number) + 1}\b", last.source), "name the next lesson"


def test_every_fold_is_closed_in_its_own_cell(lesson):
    assert [text for text in markdown(lesson) if unbalanced_folds(text)] == []


@pytest.mark.parametrize(
    ("text", "unbalanced"),
    [
        ("<details><summary>Idea</summary>x</details>", False),
        ("no fold", False),
        ("<details><summary>Idea</summary>x", True),
        ("<details><summary>Idea x</details>", True),
        ("<details>x</details>", True),
    ],
)
def test_a_fold_that_is_not_closed_is_seen(text, unbalanced):
    assert unbalanced_folds(text) is unbalanced


def test_tags_and_addresses_are_no_words():
    assert len(words("A [link](https://a.b/c) in <b>bold</b>, | --- | and `code`.")) == 6
