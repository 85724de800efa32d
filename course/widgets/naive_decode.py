"""The widget of lesson 02: the grid of work done again."""

from __future__ import annotations

from ipywidgets import IntSlider

from course.plots.naive_decode import draw_grid
from course.widgets.playground import playground


def play_with_the_grid(p: int = 3, g: int = 4) -> None:
    """Show the COMPUTE/REDO grid with sliders for prompt and new tokens."""
    playground(
        draw_grid,
        p=IntSlider(p, 1, 40, description="prompt"),
        g=IntSlider(g, 0, 40, description="new tokens"),
    )
