"""Draw lesson 00's pictures: a machine's card, a matrix product, and what one token costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.measure.machine import Card
from course.plots.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, Picture, course_style
from course.plots.units import in_digits

LIGHT = "#EEEEEE"
MODELS = {"this course": 1.4e6, "135M": 0.27e9, "8B": 16e9, "70B": 140e9}
"""Bytes of weights, two for each parameter: the shipped story model, then open models."""


def draw_card(card: Card) -> Picture:
    """Draw a machine's parts on one card, and which models' weights fit into its memory."""
    gpu = card.gpu or "no GPU (none is needed)"
    with course_style():
        figure, (above, below) = plt.subplots(2, 1, figsize=(7.5, 3.6), height_ratios=[1.15, 1])
        _draw_parts(above, card, gpu)
        _draw_fits(below, card)
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    alt = (
        f"A card of this machine: {card.cpu} with {card.cores} cores, {card.memory / 1e9:.1f} GB of "
        f"memory, GPU: {gpu}; {card.system}; {versions}. Below, its memory as a bar on a "
        f"logarithmic scale, with marks for the weights of "
        f"{', '.join(f'{name} ({_bytes(size)})' for name, size in MODELS.items())}."
    )
    caption = (
        "Your machine. A mark inside a bar: those weights fit, two bytes for each parameter. The "
        "models of this course are so small that they fit anywhere."
    )
    return Picture(figure, alt, caption)


def _draw_parts(axes: Axes, card: Card, gpu: str) -> None:
    """Draw the cores and the GPU as boxes, with their names and the versions."""
    axes.set(xlim=(0, 10), ylim=(0, 3), title="This machine")
    axes.axis("off")
    for core in range(min(card.cores, 32)):
        column, row = core % 16, core // 16
        axes.add_patch(Rectangle((0.05 + 0.2 * column, 1.35 - 0.3 * row), 0.16, 0.24, color=BLUE))
    axes.text(0.05, 2.35, card.cpu, weight="bold")
    axes.text(0.05, 1.85, f"{card.cores} core{'s' if card.cores > 1 else ''} to use", color=GREY)
    color = GREEN if card.gpu else LIGHT
    axes.add_patch(Rectangle((5.5, 1.05), 3.1, 0.54, color=color))
    axes.text(5.5, 2.35, gpu, weight="bold")
    memory = _bytes(card.gpu_memory) if card.gpu_memory else "shares the main memory"
    axes.text(5.5, 1.85, memory if card.gpu else "everything here runs on the CPU", color=GREY)
    versions = "   ".join(f"{name} {version}" for name, version in card.versions.items())
    axes.text(0.05, 0.2, f"{card.system}\n{versions}", color=GREY, fontsize=8, linespacing=1.5)


def _draw_fits(axes: Axes, card: Card) -> None:
    """Draw the memory as bars on a logarithmic scale, with a mark for each model's weights."""
    bars = {"memory": (card.memory, BLUE)}
    if card.gpu_memory:
        bars["GPU memory"] = (card.gpu_memory, GREEN)
    for y, (name, (size, color)) in enumerate(bars.items()):
        axes.barh(y, size, color=color, height=0.5)
        axes.text(4e6, y, f"{name}: {_bytes(size)}", color="white", va="center", weight="bold")
    for name, size in MODELS.items():
        axes.vlines(size, -0.5, len(bars) - 0.5, color=ORANGE, linewidth=2)
        axes.text(size, len(bars) - 0.45, f"{name}\n{_bytes(size)}", ha="center", va="bottom")
    axes.set(xscale="log", xlim=(3e5, 1e12), ylim=(-0.5, len(bars) + 0.55), yticks=[])
    axes.set_xticks([1e6, 1e9, 1e12], ["1 MB", "1 GB", "1 TB"])
    axes.spines["left"].set_visible(False)


def _bytes(size: float) -> str:
    """Write a size with its unit prefix, such as "16 GB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:,.0f} B"


def draw_product(m: int, k: int, n: int) -> Picture:
    """Draw (m, k) times (k, n): the row and the column that meet in one number of the output."""
    row, column = m // 2, n // 2
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 2.6))
        x = 0.0
        for rows, columns, name, color, lit in [
            (m, k, "x: tokens", SKY, lambda i, _: i == row),
            (k, n, "W: weights", ORANGE, lambda _, j: j == column),
            (m, n, "output", VERMILION, lambda i, j: (i, j) == (row, column)),
        ]:
            for i, j in np.ndindex(rows, columns):
                shade = color if lit(i, j) else LIGHT
                axes.add_patch(Rectangle((x + j, rows - 1 - i), 0.9, 0.9, facecolor=shade))
            axes.text(x, -0.35, f"{name}\n({rows} × {columns})", va="top")
            sign = {"x: tokens": "·", "W: weights": "="}.get(name, "")
            x += max(columns, 4) + 1.4
            axes.text(x - 0.8, max(m, k) / 2, sign, ha="center", va="center", fontsize=16)
        axes.set(xlim=(-0.2, x - 1), ylim=(-1.9, max(m, k) + 0.2), aspect="equal")
        axes.axis("off")
    alt = (
        f"Three grids: x with {m} rows and {k} columns, W with {k} rows and {n} columns, the output "
        f"with {m} rows and {n} columns. One row of x, one column of W and the one number of the "
        f"output where they meet are coloured."
    )
    caption = (
        f"One number of the output is one row (blue) times one column (orange): {k} pairs. There "
        f"are {m} · {n} = {m * n} such numbers."
    )
    return Picture(figure, alt, caption)


def draw_work_and_bytes(
    matmul_flops: Callable[..., int],
    matmul_bytes: Callable[..., int],
    size: int = 4096,
    tokens: Sequence[int] = (1, 4, 16, 64, 256, 1024, 4096),
) -> Picture:
    """Plot operations and bytes of a size × size fp16 matrix against the number of tokens."""
    flops = [matmul_flops(m, size, size) for m in tokens]
    moved = [matmul_bytes(m, size, size, 2) for m in tokens]
    with course_style():
        figure, axes = plt.subplots(figsize=(7, 3.2))
        axes.plot(tokens, flops, "o-", color=VERMILION, label="FLOPs")
        axes.plot(tokens, moved, "s-", color=BLUE, label="bytes")
        axes.set(xscale="log", yscale="log", xlabel="tokens that go through the matrix together")
        axes.set_xticks(list(tokens), [f"{m:,}" for m in tokens])
        axes.minorticks_off()
        axes.set_title(f"A {size:,} × {size:,} matrix of 16-bit numbers")
        axes.text(tokens[-1] * 0.8, flops[-1], "FLOPs ", color=VERMILION, ha="right")
        axes.text(tokens[-1], moved[-1] * 1.6, "bytes", color=BLUE, ha="right")
        axes.annotate(
            f"1 token: {flops[0] / moved[0]:.1f} FLOP per byte",
            (tokens[0], flops[0]),
            xytext=(tokens[0] * 1.6, flops[0] * 30),
            arrowprops={"arrowstyle": "->", "color": GREY},
        )
    alt = (
        f"Two curves on logarithmic axes against 1 to {tokens[-1]:,} tokens. They start at the same "
        f"height, {flops[0]:,} FLOPs and {moved[0]:,} bytes. FLOPs rise in proportion to the tokens "
        f"to {flops[-1]:,}; bytes stay flat for long and end at {moved[-1]:,}."
    )
    caption = (
        "For one token the two curves start at the same height. More tokens bring more work, but "
        "hardly more bytes until the tokens themselves outweigh the matrix, which is read once for all."
    )
    return Picture(figure, alt, caption)


def draw_time_per_token(times: Mapping[int, Sequence[float]]) -> Picture:
    """Draw measured seconds of one call, for each number of tokens, per call and per token."""
    tokens = list(times)
    call = np.array([np.median(times[m]) for m in tokens])
    each = call / tokens
    with course_style():
        figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.8))
        labels = [str(m) for m in tokens]
        for one, values, color, title in [
            (axes[0], call, BLUE, "one call, all its tokens (ms)"),
            (axes[1], each, ORANGE, "the same, for each token (ms)"),
        ]:
            bars = one.bar(labels, values * 1e3, color=color)
            one.bar_label(bars, [in_digits(value * 1e3) for value in values], fontsize=8)
            one.set(title=title, xlabel="tokens together", yticks=[])
            one.spines["left"].set_visible(False)
    seen = ", ".join(f"{m}: {in_digits(c * 1e3)} ms" for m, c in zip(tokens, call, strict=True))
    alt = (
        f"Two bar charts. Left, the time of one call by tokens: {seen}. Right, the same divided by "
        f"the tokens, from {in_digits(each[0] * 1e3)} ms down to {in_digits(each[-1] * 1e3)} ms."
    )
    caption = (
        f"Measured here, one thread, medians: {tokens[-1]} tokens together took {call[-1] / call[0]:.0f} "
        f"times as long as one: {each[-1] / each[0]:.2f} of a single one's time each."
    )
    return Picture(figure, alt, caption)
