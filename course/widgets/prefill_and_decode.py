"""The widget of lesson 04: a stream and a long prompt that share one machine."""

from __future__ import annotations

from collections.abc import Mapping

from ipywidgets import SelectionSlider

from course.plots.prefill_and_decode import draw_sharing
from course.plots.style import Picture
from course.widgets.playground import playground

SIZES = (8, 16, 32, 64, 128, 256)


def share_a_machine(iteration_seconds: Mapping[int, float], prompt_len: int) -> None:
    """Show what a chunk size does to a stream under way and to a newcomer, with a slider for it.

    Args:
        iteration_seconds: measured, by the number of tokens of a forward pass; at least two sizes.
        prompt_len: tokens of the newcomer's prompt.
    """
    sizes = [*(size for size in SIZES if size < prompt_len), prompt_len]

    def draw(chunk: int) -> Picture:
        return draw_sharing(iteration_seconds, prompt_len, chunk, sizes)

    playground(draw, chunk=SelectionSlider(options=sizes, value=sizes[-1], description="chunk"))
