"""Draw phases of generation under a roof, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from course.measure.costs import Parts
from course.measure.limits import Machine
from course.measure.recorded import Recording
from course.plots.roofline.axes import Attainable, draw_axes, draw_roof
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Picture,
    course_style,
)
from course.plots.units import as_time

FILLS = {"hollow": "none", "filled": "full", "half filled": "left"}
"""How the points of a recorded model are filled, and what Matplotlib calls it."""


def draw_phases(
    attainable: Attainable,
    machine: Machine,
    bills: Mapping[str, Parts],
    times: Mapping[str, float] | None = None,
    recorded: Sequence[Recording] = (),
) -> Picture:
    """Draw phases under the roof. Predicted: their matrices as rings, their attention as squares, both
    on the roof. Measured: each whole phase as a ring where it was predicted and a dot where it is.

    Args:
        attainable: the lesson's function, which says how high the roof is.
        machine: whose roof is drawn.
        bills: what each phase costs, by name.
        times: measured seconds by the same names; left out, only predictions are drawn.
        recorded: runs on other machines, drawn with their own roofs, as recorded.
    """
    predicted = {name: parts.seconds(attainable, machine) for name, parts in bills.items()}
    points = [point for run in recorded for point in run.points]
    across = [part.intensity for parts in bills.values() for part in parts]
    across += [point.intensity for point in points]
    up = [attainable(part.intensity, machine) for parts in bills.values() for part in parts]
    up += [bills[name].whole.flops / seconds for name, seconds in (times or {}).items()]
    up += [point.flops_per_second for point in points]
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.9), width_ratios=[1.35, 1])
        draw_axes(left, across, up)
        draw_roof(left, machine, BLUE, machine.name)
        for run, color in zip(recorded, (PURPLE, GREEN, SKY) * len(recorded), strict=False):
            _draw_recording(left, run, color)
        if times:
            _draw_pairs(left, bills, predicted, times)
        else:
            _draw_parts(left, bills, attainable, machine)
        left.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0, 1))  # clear of every point
        rows = _draw_seconds(right, predicted, times)
    marks = "with a ring where it was predicted and a dot where it was measured, for each phase"
    if not times:
        marks = (
            "with a ring for each phase's matrices and a square for its attention, all on the roof"
        )
    alt = (
        f"Left, a roofline of {machine.name}, ridge at {machine.balance:.3g} FLOP/byte, {marks}. Right, "
        f"seconds of each phase: {'; '.join(rows)}."
    )
    return Picture(figure, alt, _caption_of_phases(predicted, times, recorded))


class _Labels:
    """Number marks; those in one place share a label."""

    def __init__(self, axes: Axes) -> None:
        self.axes, self.labels = axes, {}

    def add(self, number: int, x: float, y: float) -> None:
        place = (float(f"{x:.1g}"), float(f"{y:.1g}"))
        if place in self.labels:
            self.labels[place].set_text(f"{self.labels[place].get_text()}, {number}")
            return
        above = {"xytext": (3, 7), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        self.labels[place] = self.axes.annotate(str(number), (x, y), **above)


def _draw_parts(
    axes: Axes, bills: Mapping[str, Parts], attainable: Attainable, machine: Machine
) -> None:
    """Draw matrices and attention of each phase on the roof."""
    labels = _Labels(axes)
    for number, (name, parts) in enumerate(bills.items(), 1):
        color = ORANGE if "prefill" in name else VERMILION
        for part, marker, size in zip(parts, "os", (10, 6), strict=True):
            top = attainable(part.intensity, machine)
            axes.plot(part.intensity, top, marker, color=color, markersize=size, fillstyle="none")
        labels.add(number, parts.matrices.intensity, attainable(parts.matrices.intensity, machine))
    for marker, text in (("o", "matrices"), ("s", "attention")):
        axes.plot([], [], marker, color=GREY, fillstyle="none", label=text)


def _draw_pairs(
    axes: Axes,
    bills: Mapping[str, Parts],
    predicted: Mapping[str, float],
    times: Mapping[str, float],
) -> None:
    """Draw each whole phase, predicted and measured."""
    labels = _Labels(axes)
    for number, (name, parts) in enumerate(bills.items(), 1):
        color, cost = ORANGE if "prefill" in name else VERMILION, parts.whole
        top, measured = cost.flops / predicted[name], cost.flops / times[name]
        axes.plot(cost.intensity, top, "o", color=color, markersize=10, fillstyle="none")
        axes.plot([cost.intensity] * 2, [top, measured], color=color, linewidth=1)
        axes.plot(cost.intensity, measured, "o", color=color, markersize=6)
        labels.add(number, cost.intensity, top)


def _draw_recording(axes: Axes, run: Recording, color: str) -> None:
    """Draw a run under its own roof; the points of each size of model are filled in another way."""
    draw_roof(axes, run.machine, color, run.label)
    fills = _fills_of(run)
    for point in run.points:
        axes.plot(
            point.intensity,
            point.flops_per_second,
            "s" if point.phase == "prefill" else "D",
            color=color,
            markersize=5,
            markerfacecoloralt="none",
            fillstyle=FILLS[fills[point.size]],
        )


def _fills_of(run: Recording) -> dict[str, str]:
    """Give each size of model a way to be filled; after the last way comes the first again."""
    sizes = dict.fromkeys(point.size for point in run.points)
    return dict(zip(sizes, cycle(FILLS), strict=False))


def _draw_seconds(
    axes: Axes, predicted: Mapping[str, float], times: Mapping[str, float] | None
) -> list[str]:
    """Draw a row for each phase, predicted and measured within a band; return them in words."""
    rows = []
    names = [f"{name}  {number}" for number, name in enumerate(predicted, 1)]
    axes.set_yticks(range(len(predicted)), names)
    axes.invert_yaxis()
    for y, (name, seconds) in enumerate(predicted.items()):
        color = ORANGE if "prefill" in name else VERMILION
        axes.barh(y, seconds, left=seconds, height=0.7, color=GREY, alpha=0.25, linewidth=0)
        axes.plot(seconds, y, "o", color=color, markersize=9, fillstyle="none")
        words = f"{name} predicted {as_time(seconds)}"
        if times:
            axes.plot(times[name], y, "o", color=color, markersize=6)
            words += f", measured {as_time(times[name])}"
        rows.append(words)
        last = max(2 * seconds, times[name] if times else 0)
        text = as_time(seconds) if not times else f"{times[name] / seconds:.1f}×"
        axes.annotate(text, (last, y), xytext=(6, 0), textcoords="offset points", va="center")
    drawn = [*predicted.values(), *(times or {}).values()]
    axes.set(xscale="log", xlim=(min(drawn) / 2, max(*drawn, 2 * max(predicted.values())) * 3.5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: as_time(x)))
    axes.minorticks_off()
    axes.set_title("measured ÷ predicted" if times else "predicted")
    return rows


def _caption_of_phases(
    predicted: Mapping[str, float], times: Mapping[str, float] | None, recorded: Sequence[Recording]
) -> str:
    if not times:
        caption = (
            "Numbered rings: matrices. Squares: attention. Right: the seconds of both, added. The grey "
            "bands reach from there to twice as much: no run should be far left of its band, and a good "
            "one stays in it."
        )
    else:
        hit = [name for name, seconds in times.items() if seconds <= 2 * predicted[name]]
        caption = (
            f"Rings: predicted. Dots: measured here. {len(hit)} of "
            f"{len(times)} phases are within a factor of 2 (the grey bands)."
        )
        if any(seconds < 0.9 * predicted[name] for name, seconds in times.items()):
            caption += (
                " A phase that beats the roof says that the machine was busy while its limits were "
                "measured (restart, and measure again) or, on a GPU, that reads are faster than the copy "
                "that measured them."
            )
    if recorded:
        runs = "; ".join(
            f"{run.label} ({', '.join(map(' '.join, _fills_of(run).items()))})" for run in recorded
        )
        caption += f" Squares (prefill) and diamonds (decode) are recorded, not yours: {runs}."
    return caption
