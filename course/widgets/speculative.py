"""The sliders of lesson 12: acceptance, cost and length of a draft, and the expected speed-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ipywidgets import FloatSlider, IntSlider

from course.drafts.race import Tally
from course.plots.speculative import draw_expected
from course.plots.style import Picture
from course.widgets.playground import playground

LONGEST = 16


def play_with_drafts(
    expected_tokens: Callable[[float, int], float], found: Mapping[str, Tally], n_draft: int
) -> None:
    """Show sliders of acceptance, cost and K; the expected speed-up by the lesson's function.

    Args:
        found: what a race measured, by the draft's name.
        n_draft: the K of that race.
    """

    def draw(a: float, c: float, K: int) -> Picture:
        line = [(k, expected_tokens(a, k) / (1 + k * c)) for k in range(LONGEST + 1)]
        return draw_expected(line, found, n_draft, (a, c, K))

    playground(
        draw,
        a=FloatSlider(
            value=0.63, min=0, max=1, step=0.01, description="a", continuous_update=False
        ),
        c=FloatSlider(value=0, min=0, max=1.5, step=0.01, description="c", continuous_update=False),
        K=IntSlider(value=n_draft, min=0, max=LONGEST, description="K", continuous_update=False),
    )
