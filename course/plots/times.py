"""How long ways of doing the same take, beside one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from course.plots.style import BLUE, GREY, Picture, course_style
from course.plots.units import in_digits


def draw_times(times: Mapping[str, Sequence[float]], what: str, beside: str) -> Picture:
    """Draw milliseconds by name, the shortest of each.

    Args:
        times: seconds by name.
        what: was timed, for the axis.
        beside: the name by which the others are divided in the caption.
    """
    shortest = {name: 1e3 * min(seconds) for name, seconds in times.items()}
    with course_style():
        figure, axis = plt.subplots(figsize=(7.4, 0.42 * len(shortest) + 0.9))
        colours = [GREY if name == beside else BLUE for name in shortest]
        axis.barh(list(shortest), list(shortest.values()), color=colours, height=0.6)
        for place, length in enumerate(shortest.values()):
            axis.text(length, place, f" {in_digits(length)} ms", va="center")
        axis.set(xlim=(0, max(shortest.values()) * 1.2), ylim=(len(shortest) - 0.5, -0.5))
        axis.set_xlabel(f"ms for {what}, shortest of several rounds")
    in_words = "; ".join(
        f"{name}, {in_digits(length / shortest[beside])} times as long"
        for name, length in shortest.items()
        if name != beside
    )
    return Picture(
        figure,
        f"Bars of milliseconds. {beside}, {in_digits(shortest[beside])} ms; beside it: {in_words}.",
        f"Measured here, beside {beside}: {in_words}.",
    )
