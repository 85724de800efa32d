"""A known mistake costs three points at most, however many questions notice it."""

import pytest
from submissions import answers, short

from autograder.lessons import find
from autograder.one_mistake import CREDITED, charge_once
from autograder.result import Answer, Outcome


def lost(**points: float) -> list[Answer]:
    """Answers to questions of so many points, all of them lost."""
    return [Answer(check, Outcome.SCORE, 0, most, "Why?") for check, most in points.items()]


def all_of(checks: str, *bugs: str) -> dict[str, set[str]]:
    """Say that each of these mistakes explains every one of these losses."""
    return {check: set(bugs) for check in checks}


def points_of(answers: list[Answer]) -> list[float]:
    return [answer.points for answer in answers]


def test_what_a_mistake_costs_beyond_three_points_is_given_back_from_the_last_question_on():
    answers = charge_once(lost(a=1, b=2, c=2, d=1), all_of("abcd", "one", "another"))
    assert points_of(answers) == [0, 0, 2, 1]
    assert [answer.message for answer in answers] == ["Why?", "Why?", CREDITED, CREDITED]
    assert [answer.credited for answer in answers] == [False, False, True, True]


def test_a_part_of_a_question_is_given_back():
    first, second = charge_once(lost(a=2, b=2), {"a": {"one"}, "b": {"one"}})
    assert (first.points, second.points) == (0, 1)
    assert second.message.startswith("Why? One mistake costs 3 points at most, 1")


@pytest.mark.parametrize(
    "may_be",
    [
        {},
        {"a": {"one"}, "b": {"one"}},
        {"a": {"one"}, "b": {"one"}, "c": {"another"}, "d": {"another"}},
        {"a": set(), "b": set(), "c": set(), "d": set()},
        all_of("abcd", "one", "cheap"),
    ],
)
def test_other_mistakes_and_little_work_cost_what_they_lose(may_be):
    answers = lost(a=1, b=2, c=2, d=1)
    assert charge_once(answers, may_be, cheap={"cheap"}) == answers


def test_of_two_mistakes_each_costs_three_points():
    may_be = all_of("ab", "one") | all_of("cd", "another")
    answers = charge_once(lost(a=2, b=2, c=2, d=2), may_be)
    assert points_of(answers) == [0, 1, 0, 1]


def test_what_one_mistake_explains_alone_is_told_from_what_little_work_explains_as_well():
    may_be = {"a": {"one", "cheap"}, "b": {"one", "cheap"}, "c": {"one"}}
    assert points_of(charge_once(lost(a=2, b=2, c=2), may_be, cheap={"cheap"})) == [0, 1, 2]


# --- judged --------------------------------------------------------------------------------------


@pytest.fixture
def cache(desks):
    """The desk of lesson 10 and its right class, about which seven points are asked."""
    desk = desks("10-paged-cache")
    return desk, answers(desk.lesson)["PagedKVCache"]


@pytest.mark.slow
def test_a_class_with_one_wrong_line_costs_three_points(cache):
    desk, right = cache
    wrong = right.replace("return rows[0], rows[1]", "return rows[1], rows[0]")
    assert wrong != right
    result = desk.judge(short(desk.lesson, PagedKVCache=wrong))
    assert result.points == 7
    assert CREDITED in [answer.message for answer in result.answers]


@pytest.mark.slow
def test_a_class_that_only_stops_costs_all_its_points(cache):
    """Nothing tells that the rest of it is right."""
    desk, _ = cache
    stops = "class PagedKVCache:\n    def __init__(self, *_):\n        raise RuntimeError('no')"
    result = desk.judge(short(desk.lesson, PagedKVCache=stops))
    about = [
        answer.points
        for answer in result.answers
        if "PagedKVCache" in find(f"paged_cache.{answer.check}").needs
    ]
    assert len(about) >= 4
    assert not any(about)
