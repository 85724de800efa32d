"""The pictures of lesson 10: a pool over time, what is wasted, forks, first tokens."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import ConnectionPatch, Rectangle

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
from course.world.requests import MEMORY, Blocks, Request, Trace, Whole, simulate

Tables = list[list[int]]
_TEXTS = [to_rgb(colour) for colour in (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW)]
_PARTS = {"holds tokens": BLUE, "taken, and empty": ORANGE, "free": GREY}
_PLACES = 8
"""Places of the memory that make one cell of a picture."""


def draw_pool_over_time(requests: Sequence[Request], steps: Sequence[int]) -> Picture:
    """Draw the places of the memory at some steps, reserved at max_len and in blocks of 16."""
    policies = {
        "reserved at max_len, 1,024 places a text": Whole("max_len"),
        "in blocks of 16 places": Blocks(16),
    }
    used = []
    with course_style():
        figure, axes = plt.subplots(2, 1, figsize=(9.2, 5.0), sharex=True)
        for axis, (name, policy) in zip(axes, policies.items(), strict=True):
            trace = simulate(requests, MEMORY, policy, pictures=steps)
            cells = np.stack([_colours(*picture) for picture in trace.pictures])
            ends = (0, MEMORY, steps[-1] + 5, steps[0] - 5)
            axis.imshow(cells, aspect="auto", extent=ends, interpolation="nearest")
            filled = np.mean([held.mean() for _, held in trace.pictures])
            used.append(f"{filled:.0%}")
            axis.set(title=f"{name}: {filled:.0%} of the memory holds tokens", ylabel="step")
            axis.grid(visible=False)
        axes[1].set_xlabel("place in memory")
        axes[1].set_xticks(range(0, MEMORY + 1, 1024), [f"{n:,}" for n in range(0, 8193, 1024)])
    return Picture(
        figure,
        f"Two maps of a memory of {MEMORY:,} places over steps {steps[0]} to {steps[-1]}. Above, eight "
        f"stripes that are mostly pale: {used[0]} of the places hold tokens. Below, a mosaic of small "
        f"pieces in all colours, hardly any of them pale: {used[1]}.",
        f"Seven colours in turn, one per text; pale places are reserved and empty, white ones are free. "
        f"At these steps, on average {used[0]} of the memory holds tokens above, {used[1]} below.",
    )


def _colours(owner: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Colour cells of eight places: white where free, pale where taken, full where a token lies."""
    own = owner.reshape(-1, _PLACES)[:, 0]
    colour = np.array(_TEXTS)[own % len(_TEXTS)]
    strength = 0.18 + 0.82 * filled.reshape(-1, _PLACES).mean(axis=1)
    strength = np.where(own < 0, 0.0, strength)[:, None]
    return 1 - strength * (1 - colour)


def _parts(trace: Trace) -> tuple[float, float, float]:
    return trace.used, trace.reserved, trace.free


def draw_waste(traces: Mapping[str, Trace]) -> Picture:
    """Draw which part of the memory holds tokens, is taken and empty, or is free and too little."""
    with course_style():
        figure, axis = plt.subplots(figsize=(8.4, 0.42 * len(traces) + 1.2))
        for place, trace in enumerate(traces.values()):
            left = 0.0
            for (name, colour), share in zip(_PARTS.items(), _parts(trace), strict=True):
                label = name if place == 0 else None
                axis.barh(place, 100 * share, left=left, color=colour, height=0.65, label=label)
                left += 100 * share
            axis.text(1, place, f"{trace.used:.0%}", color="white", va="center", weight="bold")
        axis.set_yticks(range(len(traces)), list(traces))
        axis.set(xlim=(0, 100), ylim=(len(traces) - 0.5, -0.5), xlabel="% of the memory")
        axis.legend(ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0))
    in_words = "; ".join(
        f"{name} {trace.used:.0%}, {trace.reserved:.0%}, {trace.free:.0%}"
        for name, trace in traces.items()
    )
    return Picture(
        figure,
        f"Stacked bars: shares of the memory that hold tokens, that are taken and empty, that are free "
        f"and too little for the next text. {in_words}.",
        f"Averages over all steps at which another text waits. Holding tokens, taken and empty, free: "
        f"{in_words}.",
    )


def draw_block_sizes(traces: Mapping[int, Trace], chosen: int) -> Picture:
    """Draw the same three parts against the size of a block, with one size marked."""
    sizes, parts = list(traces), np.array([_parts(trace) for trace in traces.values()]).T * 100
    one = traces[chosen]
    with course_style():
        figure, axis = plt.subplots(figsize=(7.6, 3.3))
        axis.stackplot(sizes, parts, colors=list(_PARTS.values()), labels=list(_PARTS), alpha=0.9)
        axis.axvline(chosen, color="black", lw=2, ls="--")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set(
            xlim=(sizes[0], sizes[-1]),
            ylim=(0, 100),
            xlabel="tokens of a block",
            ylabel="% of memory",
        )
        axis.legend(ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1.0))
    said = (
        f"blocks of {chosen}: {one.used:.1%} holds tokens, {one.reserved:.1%} is taken and empty, "
        f"{one.free:.1%} is free; {one.running:.0f} texts at once"
    )
    return Picture(
        figure,
        f"Shares of the memory against the size of a block, from {sizes[0]} to {sizes[-1]}: what is "
        f"taken and empty grows with blocks. Dashed line: {said}.",
        f"Dashed line, {said}. A block of one token needs a table entry for each token.",
    )


def draw_forks(
    moments: Mapping[str, tuple[Tables, list[int]]], n_blocks: int, block_size: int
) -> Picture:
    """Draw the tables of two chats at some moments, each entry pointing to its block of the pool.

    Args:
        moments: by name, the two tables and the tokens that each chat holds.
    """
    said = []
    with course_style():
        figure, axes = plt.subplots(len(moments), 1, figsize=(8.6, 2.15 * len(moments)))
        for axis, (name, (tables, lengths)) in zip(
            np.atleast_1d(axes), moments.items(), strict=True
        ):
            _draw_moment(axis, tables, lengths, n_blocks, block_size)
            both = sorted(set(tables[0]) & set(tables[1]))
            used = len({*tables[0], *tables[1]})
            axis.set_title(f"{name}: {used} blocks in use, {len(both)} of them shared")
            said.append(f"{name}, chat A has {tables[0]}, chat B {tables[1]}, both {both}")
    return Picture(
        figure,
        f"Two tables, each entry joined by a line to its block in a row of {n_blocks}. "
        f"{'; '.join(said)}.",
        f"Blocks of {block_size} tokens: blue belongs to chat A, orange to chat B, grey to both. The "
        f"small number says how many places of a table's last block are filled; a full one has none.",
    )


def _draw_moment(
    axis: Axes, tables: Tables, lengths: list[int], n_blocks: int, block_size: int
) -> None:
    """Draw two tables, above and below the pool."""
    colours = (BLUE, ORANGE)
    owners = [[number for number in (0, 1) if b in tables[number]] for b in range(n_blocks)]
    for block, own in enumerate(owners):
        colour = "white" if not own else GREY if len(own) == 2 else colours[own[0]]
        axis.add_patch(Rectangle((block, 0), 0.9, 0.8, facecolor=colour, edgecolor=GREY))
        dark = bool(own)
        axis.text(block + 0.45, 0.4, f"{block}", ha="center", va="center",
                  color="white" if dark else "black")  # fmt: skip
    for number, (table, bottom) in enumerate(zip(tables, (1.7, -1.7), strict=True)):
        axis.text(-0.3, bottom + 0.4, f"chat {'AB'[number]}", ha="right", va="center")
        for place, block in enumerate(table):
            left = 2.0 * place + 0.5
            axis.add_patch(
                Rectangle(
                    (left, bottom), 0.9, 0.8, facecolor="white", edgecolor=colours[number], lw=2
                )
            )
            held = min(block_size, lengths[number] - place * block_size)
            axis.text(left + 0.45, bottom + 0.4, f"{block}", ha="center", va="center")
            if held < block_size:
                axis.text(left + 1.0, bottom + 0.4, f"{held}/{block_size}", va="center", fontsize=8)
            ends = ((left + 0.45, bottom), (block + 0.45, 0.8))
            if number == 1:
                ends = ((left + 0.45, bottom + 0.8), (block + 0.45, 0.0))
            axis.add_patch(
                ConnectionPatch(*ends, "data", "data", color=colours[number], lw=1, alpha=0.8)
            )
    axis.text(-0.3, 0.4, "pool", ha="right", va="center")
    axis.set(xlim=(-1.8, n_blocks + 0.2), ylim=(-1.9, 2.7))
    axis.axis("off")


def draw_first_token(times: Mapping[int, Sequence[float]], saved: Mapping[int, float]) -> Picture:
    """Draw the time to the first token by the tokens that were cached, beside what FLOPs predict.

    Args:
        times: seconds of several rounds, by cached tokens; the first is none.
        saved: share of the FLOPs that is saved, likewise.
    """
    cached = list(times)
    measured = {n: 1e3 * statistics.median(times[n]) for n in cached}
    whole = measured[cached[0]]
    expected = {n: whole * (1 - saved[n]) for n in cached}
    with course_style():
        figure, axis = plt.subplots(figsize=(7.4, 3.3))
        axis.plot(cached, list(expected.values()), "--", color=GREY, label="if only FLOPs counted")
        axis.plot(cached, list(measured.values()), "o-", color=BLUE, label="measured")
        for n in cached:
            axis.annotate(
                f"{measured[n]:.1f}", (n, measured[n]), (4, 6), textcoords="offset points"
            )
        axis.set(xlabel="tokens of 512 that are cached", ylabel="ms to the first token")
        axis.set(ylim=(0, 1.15 * max(measured.values())), xlim=(-15, 530))
        axis.set_xticks(range(0, 513, 128))
        axis.legend()
    in_words = ", ".join(f"{n} cached {measured[n]:.1f} ms" for n in cached)
    times_less = whole / measured[cached[-1]]
    return Picture(
        figure,
        f"Time to the first token of a prompt of 512 tokens: {in_words}; a dashed line shows what the "
        f"share of FLOPs predicts.",
        f"Measured here, one thread, median of rounds taken in turns: {times_less:.0f} times faster with "
        f"{cached[-1]} tokens cached; FLOPs alone would give "
        f"{1 / (1 - saved[cached[-1]]):.0f} times.",
    )
