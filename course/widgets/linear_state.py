"""The widget of lesson 17: layers of each kind, a length, checkpoints, and a cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.given.hybrid import HybridSizes
from course.plots.linear_state import draw_choice
from course.plots.style import Picture
from course.widgets.playground import choice, playground

Function = Callable[..., Any]


def choose_layers(
    state_bytes: Function, break_even: Function, resume_point: Function, sizes: HybridSizes
) -> None:
    """Show bytes and what a cut costs, with controls for the layers, the length, checkpoints and the cut.

    Args:
        state_bytes, break_even, resume_point: as built in the lesson.
        sizes: of a model of four layers.
    """

    def draw(n_full: int, n_tokens: int, every: object, taken_back: int) -> Picture:
        distance = every if isinstance(every, int) else None
        functions = state_bytes, break_even, resume_point
        return draw_choice(*functions, sizes, n_full, distance, n_tokens, taken_back)

    playground(
        draw,
        n_full=choice([0, 1, 2, 3, 4], "full layers", 1),
        n_tokens=choice([50, 100, 200, 400, 700, 1000], "tokens", 400),
        every=choice(["none", 16, 64, 256], "checkpoints every", 64),
        taken_back=choice([1, 2, 12, 40], "taken back", 12),
    )
