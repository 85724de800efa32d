"""Draw the axes of a roofline, and a machine's roof on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from course.measure.limits import Machine
from course.plots.units import with_prefix

Attainable = Callable[[float, Machine], float]
"""The lesson's function: FLOP/s that a machine reaches at an arithmetic intensity."""


def draw_axes(axes: Axes, intensities: Sequence[float], rates: Sequence[float]) -> None:
    """Make the axes logarithmic, with room around what is to be drawn."""
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP/byte)")
    axes.set_xlim(min(intensities) / 3, max(intensities) * 5)
    axes.set_ylim(min(rates) / 3, max(rates) * 4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: with_prefix(y, "FLOP/s")))
    axes.minorticks_off()


def draw_roof(axes: Axes, machine: Machine, color: str, name: str) -> None:
    """Draw the slope of the memory and the flat roof of the arithmetic unit."""
    left, right = axes.get_xlim()
    ridge, peak = machine.balance, machine.flops_per_second
    left, right = min(left, ridge / 10), max(right, ridge * 3)
    axes.plot(
        [left, ridge, right], [left * machine.bytes_per_second, peak, peak], color=color, label=name
    )
    axes.set_xlim(left, right)
    axes.set_ylim(axes.get_ylim()[0], max(axes.get_ylim()[1], peak * 3))
