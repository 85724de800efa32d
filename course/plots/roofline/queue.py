"""Draw a queue of work, and a clock beside it."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from course.plots.style import GREEN, GREY, ORANGE, SKY, VERMILION, Picture, course_style


def draw_queue(queueing: float = 1.0, work: float = 3.0, calls: int = 3) -> Picture:
    """Draw who queues work, who does it, and what a clock shows that is stopped too early."""
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 2.3))
        busy_until = _draw_calls(axes, queueing, work, calls)
        asked = calls * queueing
        axes.barh(
            1,
            busy_until - asked,
            left=asked,
            height=0.55,
            facecolor="none",
            edgecolor=GREY,
            linestyle="--",
        )
        axes.text((asked + busy_until) / 2, 1, "synchronize: wait", ha="center", va="center")
        for x, text, color in (
            (asked, "stopped too early", VERMILION),
            (busy_until, "done", GREEN),
        ):
            axes.vlines(x, -0.45, 1.45, color=color, linewidth=2)
            axes.text(x, 1.5, text, color=color, ha="center", va="bottom", fontsize=9)
        axes.set_yticks([1, 0], ["your Python", "the GPU"])
        axes.set(xlim=(0, busy_until + 1), ylim=(-0.45, 1.9), xticks=[], xlabel="time →")
        axes.spines["bottom"].set_visible(False)
    alt = (
        f"Two rows over time. In the upper one, your Python asks for {calls} pieces of work, quickly "
        f"one after another, and then waits in synchronize. In the lower one the GPU does them, each "
        f"longer than the asking, until much later. A clock that is stopped after the asking shows "
        f"{asked:g} units, one stopped when all is done {busy_until:g}."
    )
    caption = (
        "A clock that stops when Python has asked measures the asking. And who starts the clock "
        "while old work is queued measures that, too."
    )
    return Picture(figure, alt, caption)


def _draw_calls(axes: Axes, queueing: float, work: float, calls: int) -> float:
    """Draw who asks and who works, call by call; return when the last one is done."""
    busy_until = 0.0
    for call in range(calls):
        start = call * queueing
        busy_until = max(busy_until, start + queueing)
        for y, left, width, color, text in (
            (1, start, queueing, SKY, f"ask {call + 1}"),
            (0, busy_until, work, ORANGE, f"work {call + 1}"),
        ):
            axes.barh(y, width, left=left, height=0.55, color=color, edgecolor="white")
            axes.text(left + width / 2, y, text, ha="center", va="center", fontsize=9)
        busy_until += work
    return busy_until
