"""The pictures of lesson 16: who chose which expert, what a pass reads, and for whom guesses pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from course.measure.limits import Machine
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    Picture,
    course_style,
)

COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW, GREY)
"""One for each expert."""
UNREAD = "#F0F0F0"


def draw_strip(words: Sequence[str], chosen: Tensor, n_experts: int) -> Picture:
    """Draw each word with the two experts that it chose, and which experts were read up to it.

    Args:
        words: n of them.
        chosen: (n, 2) int64, of one layer.
        n_experts: at most eight.
    """
    read: set[int] = set()
    counts, listed = [], []
    with course_style():
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(7.2, 3.6), sharex=True, gridspec_kw={"height_ratios": [2, n_experts]}
        )
        for column, experts in enumerate(chosen.tolist()):
            read |= set(experts)
            counts.append(len(read))
            listed.append(f"{words[column]} {' and '.join(map(str, sorted(experts)))}")
            for row, expert in enumerate(sorted(experts)):
                _draw_expert(above, column, row, expert, str(expert))
            for expert in range(n_experts):
                mark = str(expert) if expert in experts else ""
                _draw_expert(below, column, expert, expert if expert in read else None, mark)
        n = len(words)
        above.set(xlim=(-0.6, n - 0.4), ylim=(1.6, -0.6), title="Two experts for each word")
        below.set(ylim=(n_experts - 0.4, -0.6), title="Read by now, if all words share a pass")
        below.set_xticks(range(n), words, rotation=60, ha="right", rotation_mode="anchor")
        below.set_yticks(range(n_experts), [f"{count}" for count in range(n_experts)])
        above.set_yticks([])
        below.set_ylabel("expert")
        for axes in (above, below):
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
    return Picture(
        figure,
        f"A strip of words with their two experts: {'; '.join(listed)}. Below, a column for each word "
        f"in which every expert that was chosen up to it is filled: {', '.join(map(str, counts))} of "
        f"{n_experts}.",
        f"Each word uses 2 of {n_experts} experts. After 1, 2, 3 … words {', '.join(map(str, counts))} "
        f"different ones were read. A number marks who uses it.",
    )


def _draw_expert(axes: Axes, column: int, row: int, expert: int | None, mark: str) -> None:
    colour = UNREAD if expert is None else COLOURS[expert]
    shade = 1.0 if mark or expert is None else 0.45
    axes.add_patch(
        Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=colour, alpha=shade, lw=0)
    )
    axes.text(column, row, mark, ha="center", va="center", fontsize=8)


def draw_bytes(tokens: Sequence[int], mixture: Sequence[float], dense: Sequence[float]) -> Picture:
    """Draw how many times the bytes of one token a pass reads, of a mixture and of a dense model."""
    with course_style():
        figure, axes = plt.subplots(figsize=(6.4, 3.2))
        _draw_lines(axes, tokens, {"8 of 128 experts": mixture, "dense": dense})
        axes.set(
            xlabel="tokens of a pass",
            ylabel="bytes, times those of one token",
            title="What a pass reads of the weights",
            ylim=(0, None),
        )
    pairs = ", ".join(f"{n}: {times:.1f}" for n, times in zip(tokens, mixture, strict=True))
    return Picture(
        figure,
        f"Two lines over the tokens of a pass, 1 to {tokens[-1]}. The dense model's stays at 1. The "
        f"mixture's rises and flattens: {pairs}.",
        f"A dense model reads the same for {tokens[-1]} tokens as for one. The mixture reads up to "
        f"{mixture[-1]:.1f} times as much, and most of the way is gone at 32 tokens.",
    )


def draw_gains(tokens: Sequence[int], mixture: Sequence[float], dense: Sequence[float]) -> Picture:
    """Draw how many times as fast guesses write, by the chats of a pass."""
    with course_style():
        figure, axes = plt.subplots(figsize=(6.4, 3.2))
        _draw_lines(axes, tokens, {"8 of 128 experts": mixture, "dense, 7B": dense})
        axes.axhline(1, color=GREY, lw=1, ls=":")
        axes.set(
            xlabel="chats of a pass",
            ylabel="tokens per second,\ntimes those without guesses",
            title="Four guesses at a time, on an H200 by its datasheet",
            ylim=(0, None),
        )
    least = tokens[mixture.index(min(mixture))]
    in_words = [
        f"{name}: " + ", ".join(f"{n}: {gain:.2f}" for n, gain in zip(tokens, gains, strict=True))
        for name, gains in (("mixture", mixture), ("dense", dense))
    ]
    return Picture(
        figure,
        f"Two lines over the chats of a pass. {'; '.join(in_words)}.",
        f"Guesses pay for few chats on the dense model, for many on the mixture. Least of all with "
        f"{least} chats on the mixture, {min(mixture):.2f} times; with {tokens[-1]} on the dense one, "
        f"{dense[-1]:.2f} times. Calculated, not measured; dotted: no gain.",
    )


def draw_measured(measured: Mapping[str, Mapping[int, float]], formula: Sequence[float]) -> Picture:
    """Draw measured seconds of one layer, as multiples of those of one token.

    Args:
        measured: seconds by the number of tokens, of "experts" and "dense".
        formula: experts that are read, as multiples of those of one token.
    """
    tokens = list(measured["dense"])
    times = {name: [found[n] / found[1] for n in tokens] for name, found in measured.items()}
    with course_style():
        figure, axes = plt.subplots(figsize=(6.4, 3.2))
        series = {"64 experts, 4 a token": times["experts"], "dense": times["dense"]}
        _draw_lines(axes, tokens, series)
        axes.plot(tokens, formula, color=GREY, ls="--", label="experts read, by the formula")
        axes.legend()
        axes.set(
            xlabel="tokens of a pass",
            ylabel="seconds, times those of one token",
            title="One layer on one thread of this CPU",
            ylim=(0, None),
        )
    rows = "; ".join(
        f"{n}: experts {a:.1f}, dense {b:.1f}, formula {c:.1f}"
        for n, a, b, c in zip(tokens, times["experts"], times["dense"], formula, strict=True)
    )
    return Picture(
        figure,
        f"Three lines over the tokens of a pass, as multiples of one token's: {rows}.",
        f"Measured when this page was run: with {tokens[-1]} tokens the layer of experts takes "
        f"{times['experts'][-1]:.1f} times as long as with one, the dense one "
        f"{times['dense'][-1]:.1f} times. By the formula {formula[-1]:.1f} times the experts are "
        f"read.",
    )


def draw_pass(
    machine: Machine,
    points: Mapping[str, tuple[float, float]],
    title: str,
    caption: str,
) -> Picture:
    """Draw passes on a machine's roof.

    Args:
        points: by name FLOP/byte and the FLOP/s that a pass reaches.
    """
    with course_style():
        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        ends = [0.1, machine.balance, 1e5]
        reached = [min(machine.flops_per_second, x * machine.bytes_per_second) for x in ends]
        axes.loglog(ends, reached, color=GREY, lw=2)
        for (name, (intensity, rate)), colour, marker in zip(
            points.items(), (BLUE, ORANGE, GREEN), "osD", strict=False
        ):
            axes.plot(intensity, rate, marker, color=colour, ms=9, label=name)
        axes.legend(loc="lower right")
        axes.set(xlabel="FLOP/byte", ylabel="FLOP/s", title=title)
    places = "; ".join(f"{name}: {x:.3g} FLOP/byte" for name, (x, _) in points.items())
    return Picture(
        figure,
        f"The roof of {machine.name}, which bends at {machine.balance:.0f} FLOP/byte, and passes on it: "
        f"{places}.",
        caption,
    )


def _draw_lines(axes: Axes, xs: Sequence[int], lines: Mapping[str, Sequence[float]]) -> None:
    for (name, ys), colour, marker in zip(lines.items(), (BLUE, ORANGE), "os", strict=True):
        axes.plot(xs, ys, color=colour, marker=marker, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [f"{x}" for x in xs])
    axes.minorticks_off()
    axes.legend()
