"""What lesson 14 shows in pictures and says in its text, computed by its own functions."""

import math

import pytest
import torch

from course.given.sparse import LONG_AGO, questions_about_places, share_found
from course.minigpt.sparse_read import attend_pages, choose, page_bounds, page_scores, shrink
from course.minigpt.split_read import attend_part, finish
from course.model import MiniGPT
from course.plots import sparse_read as plots

SHORT = 24
"""Rows that a head reads, or that are kept."""


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


@pytest.fixture(scope="module")
def asked():
    return questions_about_places(10)


def read_all(q, k, v):
    return finish(attend_part(q, k, v))


def skip(q, k, v, size=4, n=SHORT // 4):
    return attend_pages(q, k, v, choose(page_scores(q, *page_bounds(k, size)), n, 1), size)


def keep(q, k, v, where, last=None):
    q, k, v = (x[:, :, :where] for x in (q, k, v))
    return shrink(q if last is None else q[:, :, -last:], k, v, SHORT, 4)


def keep_in_hindsight(q, k, v, where):
    to_come = q.shape[2] - where
    three = shrink(q[:, :, where:], k, v, SHORT + to_come, to_come)
    return tuple(x[:, :, :-to_come] for x in three)


def test_every_question_asks_for_a_place_that_was_said_long_ago(asked):
    assert len(asked) > 20
    assert all(question.answer - question.where < 15 for question in asked)
    assert all(question.where > LONG_AGO for question in asked)


@pytest.mark.slow
def test_chosen_anew_24_rows_find_nearly_all_and_chosen_once_they_do_not(story, asked):
    assert share_found(story, asked, read_all) > 0.95
    skipping, evicting = share_found(story, asked, skip), share_found(story, asked, read_all, keep)
    assert skipping > 0.8
    assert evicting < 0.5
    assert share_found(story, asked, read_all, keep_in_hindsight) > 0.9


def test_all_pages_are_all_rows_in_any_order():
    generator = torch.Generator().manual_seed(3)
    q, (k, v) = (
        torch.randn(2, 8, 1, 16, generator=generator),
        torch.randn(2, 2, 4, 37, 16, generator=generator),
    )
    pages = torch.randperm(8, generator=generator).expand(2, 4, 8)
    assert torch.allclose(attend_pages(q, k, v, pages, 5), read_all(q, k, v), atol=1e-6)


@pytest.mark.parametrize(("S", "n"), [(131_072, 128), (160, 6)])
def test_bounds_and_pages_are_fewest_at_the_root(S, n):
    least = math.sqrt(S / n)
    bounds, rows = plots.rows_fetched(S, n, least)
    assert bounds == pytest.approx(rows)
    for other in (least / 1.3, least * 1.3):
        assert sum(plots.rows_fetched(S, n, other)) > bounds + rows


def test_pictures_say_what_they_show(story):
    marks = plots.draw_marks(story, 2, 5)
    assert "are not among the orange" in marks.caption
    found = plots.draw_found({"the newest": [0.0, 0.25], "skip": [0.9, 1.0]}, (16, 24), 30)
    assert "the newest 25%, skip 100%" in found.caption
    assert "2,048" not in plots.draw_bytes(131_072, 128).caption
    assert "p = √(S / n) = 32" in plots.draw_bytes(131_072, 128).caption
    assert "24 rows" not in plots.draw_way(0.9, 30, "skip", 160, 6, 4).alt
    assert "40 of them bounds" in plots.draw_way(0.9, 30, "skip", 160, 6, 4).caption
