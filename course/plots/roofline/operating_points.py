"""Draw where a model works under a published machine's roof, and what batches make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from course.measure.costs import Parts
from course.measure.limits import Machine
from course.plots.roofline.axes import Attainable, draw_axes, draw_roof
from course.plots.style import BLUE, GREY, ORANGE, VERMILION, Picture, course_style
from course.plots.units import in_digits

PLACES = {
    ("decode", "matrices"): (-7, 8),
    ("decode", "attention"): (7, -26),
    ("prefill", "matrices"): (7, -28),
    ("prefill", "attention"): (7, 9),
}
"""Where each mark's label stands, in points from it."""


def draw_operating_points(
    attainable: Attainable,
    machine: Machine,
    bills: Mapping[str, Parts],
    users: Sequence[tuple[int, float]],
    batch: int,
    most: int,
    title: str,
    caption: str,
) -> Picture:
    """Draw forward passes on the roof of one machine, their matrices and their attention apart; and what
    batches make of it.

    Args:
        bills: by name; the one of "decode" is pale where it does not fit.
        users: batches, each with the seconds of its decode step.
        batch: the one that is drawn on the roof.
        most: the largest batch that fits into the memory; 0 for none.
    """
    fits = batch <= most
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.7), width_ratios=[1.5, 1])
        draw_axes(left, (0.6, 8000), (3e10, 8e15))
        draw_roof(left, machine, BLUE, f"{machine.name}, datasheet")
        left.axvline(machine.balance, color=GREY, linestyle=":", linewidth=1)
        left.text(machine.balance * 1.1, 1.6e10, f"{machine.balance:.3g}", color=GREY)
        for (name, parts), color in zip(bills.items(), (VERMILION, ORANGE), strict=False):
            shown = color if fits or name != "decode" else GREY
            for part, of, marker in zip(parts, ("matrices", "attention"), "os", strict=True):
                rate = attainable(part.intensity, machine)
                left.plot(part.intensity, rate, marker, color=shown, markersize=8)
                place = PLACES[name, of]
                if place[0] < 0 and part.intensity < 10:  # keep clear of the axis
                    place = (0, 28)
                left.annotate(
                    f"{name}: {of}\n{in_digits(part.intensity)} FLOP/byte",
                    (part.intensity, rate),
                    xytext=place,
                    ha={-1: "right", 0: "center", 1: "left"}[int(np.sign(place[0]))],
                    textcoords="offset points",
                    color=shown,
                    fontsize=8,
                )
        left.set_title(title, fontsize=9)
        left.legend(loc="upper left", fontsize=8)
        _draw_users(right, users, batch, most)
    points = "; ".join(
        f"{of} of {name} at {in_digits(part.intensity)} FLOP/byte"
        for name, parts in bills.items()
        for part, of in zip(parts, ("matrices", "attention"), strict=True)
    )
    end = f"up to a batch of {most}, the last that fits" if most else "and none fits"
    alt = (
        f"Left, a roofline of {machine.name}, ridge at {machine.balance:.3g} FLOP/byte. {points}. Right, "
        f"over the batch, tokens a second of each user, which fall, and of all, which rise, {end}. "
        f"{' '.join(title.split())}."
    )
    return Picture(figure, alt, caption)


def _draw_users(axes: Axes, users: Sequence[tuple[int, float]], batch: int, most: int) -> None:
    """Draw tokens a second over the batch, for each user and for all; pale where memory has ended."""
    sizes = np.array([size for size, _ in users])
    seconds = np.array([second for _, second in users])
    for rates, color, name in (
        (sizes / seconds, BLUE, "tokens/s, all users"),
        (1 / seconds, VERMILION, "tokens/s, each user"),
    ):
        axes.plot(sizes, rates, color=color, alpha=0.2)
        axes.plot(sizes[sizes <= most], rates[sizes <= most], color=color, label=name)
        axes.plot(
            batch, np.interp(batch, sizes, rates), "o", color=color if batch <= most else GREY
        )
    if most < sizes[-1]:
        axes.axvspan(max(most, 1), sizes[-1], color=GREY, alpha=0.15, linewidth=0)
        axes.text(
            0.98, 0.03, "does not fit", ha="right", color=GREY, fontsize=8, transform=axes.transAxes
        )
    axes.set(xscale="log", yscale="log", xlabel="batch", xlim=(1, sizes[-1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: in_digits(y)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.minorticks_off()
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
