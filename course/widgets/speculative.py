"""The sliders of lesson 12: acceptance, cost and length of a draft, and the expected speed-up."""

from __future__ import annotations

from collections.abc import Callable

from ipywidgets import FloatSlider, IntSlider

from course.plots.speculative import draw_expected
from course.plots.style import Picture
from course.widgets.playground import playground

LONGEST = 16
MEASURED = {
    "mini": (0.82, 0.44, 0.97),
    "story-g1": (0.81, 0.91, 0.58),
    "table + own text": (0.63, 0.01, 1.84),
}
"""Acceptance, cost of a drafted token in steps of the story model, and how many times as fast with K = 4,
as measured once on one CPU core."""


def play_with_drafts(expected_tokens: Callable[[float, int], float]) -> None:
    """Show sliders of acceptance, cost and K; the expected speed-up by the lesson's function."""

    def draw(a: float, c: float, K: int) -> Picture:
        line = [(k, expected_tokens(a, k) / (1 + k * c)) for k in range(LONGEST + 1)]
        return draw_expected(line, MEASURED, (a, c, K))

    playground(
        draw,
        a=FloatSlider(
            value=0.63, min=0, max=1, step=0.01, description="a", continuous_update=False
        ),
        c=FloatSlider(value=0, min=0, max=1.5, step=0.01, description="c", continuous_update=False),
        K=IntSlider(value=4, min=0, max=LONGEST, description="K", continuous_update=False),
    )
