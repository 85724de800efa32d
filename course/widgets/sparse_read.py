"""The widget of lesson 14: pages, how many of them, and whether rows are skipped or thrown away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from course.given.sparse import questions_about_places, share_found
from course.minigpt.split_read import attend_part, finish
from course.model import MiniGPT
from course.plots.sparse_read import draw_way
from course.plots.style import Picture
from course.widgets.playground import choice, playground

Function = Callable[..., Any]


def read_or_keep(
    model: MiniGPT,
    page_bounds: Function,
    page_scores: Function,
    choose: Function,
    attend_pages: Function,
    shrink: Function,
) -> None:
    """Show what is found and what is fetched, with controls for the way, the size of a page, and how many
    are read; thrown away are the rows that the last 32 queries looked at least.

    Args:
        page_bounds, page_scores, choose, attend_pages, shrink: as built in the lesson.
    """
    asked = questions_about_places(6)
    S = round(sum(question.where for question in asked) / len(asked))

    def draw(way: str, size: int, n: int) -> Picture:
        def skipping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = page_scores(q, *page_bounds(k, size))
            return attend_pages(q, k, v, choose(scores, n, 1), size)

        def kept(q: Tensor, k: Tensor, v: Tensor, where: int) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = (x[:, :, :where] for x in (q, k, v))
            return shrink(q[:, :, -32:], k, v, n * size, min(4, n * size))

        def everything(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return finish(attend_part(q, k, v))

        if way == "skip":
            share = share_found(model, asked, skipping)
        else:
            share = share_found(model, asked, everything, kept)
        return draw_way(share, len(asked), way, S, n, size)

    playground(
        draw,
        way=choice(["skip", "evict"], "way"),
        size=choice([2, 4, 8, 16], "page", 4),
        n=choice([2, 4, 6, 8, 16], "pages", 6),
    )
