"""Draw one matrix under a roof, for several numbers of tokens at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from course.measure.limits import Machine
from course.plots.roofline.axes import draw_axes, draw_roof
from course.plots.style import BLUE, GREY, ORANGE, Picture, course_style


def draw_matrix(
    machine: Machine,
    matmul_flops: Callable[..., int],
    matmul_bytes: Callable[..., int],
    k: int,
    n: int,
    tokens: Sequence[int],
) -> Picture:
    """Draw a 16-bit matrix (k, n) under a machine's roof, for several numbers of tokens at once."""
    flops = {m: matmul_flops(m, k, n) for m in tokens}
    moved = {m: matmul_bytes(m, k, n, 2) for m in tokens}
    intensity = {m: flops[m] / moved[m] for m in tokens}
    rates = {
        m: flops[m] / max(flops[m] / machine.flops_per_second, moved[m] / machine.bytes_per_second)
        for m in tokens
    }
    peak = machine.flops_per_second
    with course_style():
        figure, axes = plt.subplots(figsize=(7, 3.6))
        draw_axes(axes, list(intensity.values()), list(rates.values()))
        draw_roof(axes, machine, BLUE, machine.name)
        _name_both_sides(axes, machine)
        for m in tokens:
            axes.plot(intensity[m], rates[m], "o", color=ORANGE, markersize=8)
            axes.annotate(
                f"{m:,} token{'s' if m > 1 else ''}: {rates[m] / peak:.0%} busy",
                (intensity[m], rates[m]),
                xytext=(9, -14),
                textcoords="offset points",
            )
    dots = "; ".join(
        f"{m} tokens at {intensity[m]:.3g} FLOP/byte, {rates[m] / peak:.0%} of the peak"
        for m in tokens
    )
    alt = (
        f"A roofline on logarithmic axes: a slope that rises to the ridge at {machine.balance:.3g} "
        f"FLOP/byte, and a flat roof from there on. Dots on it: {dots}."
    )
    caption = (
        f"A {k:,} × {n:,} matrix in 16 bits on {machine.name}. More tokens at once move the dot to "
        f"the right, along the roof: each byte that arrives is used for more of them."
    )
    return Picture(figure, alt, caption)


def _name_both_sides(axes: Axes, machine: Machine) -> None:
    """Mark the ridge, and write on each side of it what sets the pace."""
    ridge, peak = machine.balance, machine.flops_per_second
    axes.set_xlim(axes.get_xlim()[0], ridge * 60)
    axes.axvline(ridge, color=GREY, linestyle=":", linewidth=1)
    bottom = axes.get_ylim()[0]
    axes.text(ridge * 1.08, bottom * 1.3, f"ridge: {ridge:.3g} FLOP/byte", color=GREY)
    axes.text(ridge * 1.1, peak * 1.5, "the arithmetic unit sets the pace", color=BLUE)
    x = np.sqrt(axes.get_xlim()[0] * ridge) / 1.5
    y = x * machine.bytes_per_second * 2.4
    axes.text(x, y, "the memory\nsets the pace", color=BLUE, ha="right")
