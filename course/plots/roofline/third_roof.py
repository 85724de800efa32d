"""Draw what the operations of a tiny model's step take, beside what its roofs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from course.fast.steps import Operations
from course.measure.costs import Cost
from course.measure.limits import Machine
from course.plots.style import BLUE, ORANGE, VERMILION, Picture, course_style
from course.plots.units import as_time


def draw_third_roof(
    cost: Cost,
    machine: Machine,
    prices: Operations,
    asked: Mapping[str, Operations],
    taken: Mapping[str, float],
) -> Picture:
    """Draw three predictions of a tiny model's step beside what it took.

    Args:
        cost: of the step.
        machine: for the first two predictions.
        prices: seconds that a view and the cheapest kernel take.
        asked: how many of both each way of doing the step asks for.
        taken: seconds that it took, by the same names.
    """
    rows = [
        ("by its FLOPs", cost.flops / machine.flops_per_second, BLUE),
        ("by its bytes", cost.bytes / machine.bytes_per_second, BLUE),
    ]
    least = {name: n.views * prices.views + n.kernels * prices.kernels for name, n in asked.items()}
    for name, n in asked.items():
        words = f"{name}: {n.views} views, {n.kernels} kernels"
        rows += [(words, least[name], ORANGE), (f"{name}: measured", taken[name], VERMILION)]
    figure = _bars_of_seconds(rows)
    bars = "; ".join(f"{name} {as_time(seconds)}" for name, seconds, _ in rows)
    alt = f"Bars of seconds on a logarithmic scale for one decode step of the mini model: {bars}."
    slowest = max(taken, key=taken.get)
    caption = (
        f"Blue and orange are predicted, red is measured. {slowest}: "
        f"{taken[slowest] / max(rows[0][1], rows[1][1]):.0f} times what the two roofs say, and "
        f"{taken[slowest] / least[slowest]:.1f} times what its operations take at least, "
        f"{as_time(prices.views)} a view and {as_time(prices.kernels)} a kernel."
    )
    return Picture(figure, alt, caption)


def _bars_of_seconds(rows: Sequence[tuple[str, float, str]]) -> Figure:
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.36 * len(rows)))
        least = min(seconds for _, seconds, _ in rows) / 3
        for y, (_, seconds, color) in enumerate(rows):
            axes.barh(y, seconds - least, left=least, color=color, height=0.7)
            axes.text(seconds * 1.1, y, as_time(seconds), va="center", fontsize=9)
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.invert_yaxis()
        most = max(seconds for _, seconds, _ in rows)
        axes.set(xscale="log", xlim=(least, most * 4), xlabel="one step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: as_time(x)))
        axes.minorticks_off()
    return figure
