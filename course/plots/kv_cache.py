"""Draw lesson 03's pictures: rows computed and read, masks, copies, a filling cache, a race, bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, NullLocator

from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    Picture,
    course_style,
)

_PAPER = "#F2F2F2"


def draw_rows(prompt_len: int, n_new: int) -> Picture:
    """Draw which rows of keys and values each decode step computes, without and with a cache."""
    places, steps = prompt_len + n_new - 1, n_new
    with course_style():
        figure, axes = plt.subplots(1, 2, figsize=(8, 0.42 * places + 1.1), sharey=True)
        for axis, cached in zip(axes, (False, True), strict=True):
            computed = 0
            for step in range(steps):
                for place in range(prompt_len + step):
                    new = place >= prompt_len + step - 1 or step == 0
                    computed += new or not cached
                    _row_cell(axis, step, place, new, cached)
            _grid(axis, steps, places)
            axis.set_xlabel("decode step")
            axis.set_title(f"{'With a cache' if cached else 'Without'}: {computed} rows computed")
        axes[0].set_ylabel("token")
    return Picture(
        figure,
        f"Two grids of {steps} decode steps by {places} tokens. Without a cache every visible token "
        f"is computed at every step. With one, a token is computed once and read at later steps.",
        f"{prompt_len} prompt tokens, {n_new} new ones. Left: every step computes everything that it "
        f"sees. Right: what was computed once is only read.",
    )


def _row_cell(axis: Axes, step: int, place: int, new: bool, cached: bool) -> None:
    word = "compute" if new else "read" if cached else "redo"
    colour = {"compute": BLUE, "read": "white", "redo": ORANGE}[word]
    axis.add_patch(Rectangle((step, place), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
    axis.text(
        step + 0.5,
        place + 0.5,
        word,
        ha="center",
        va="center",
        fontsize=8,
        color="white" if new else GREY if cached else "black",
    )


def _grid(axis: Axes, columns: int, rows: int) -> None:
    """Lay out cells of one unit, token 0 on top, and number them."""
    axis.set(xlim=(0, columns), ylim=(rows, 0))
    axis.set_xticks(np.arange(columns) + 0.5, [str(n + 1) for n in range(columns)])
    axis.set_yticks(np.arange(rows) + 0.5, [str(n) for n in range(rows)])
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def draw_masks(sizes: Sequence[tuple[int, int]]) -> Picture:
    """Draw causal masks of sizes (n_new, n_visible) side by side: which keys each new token may see."""
    with course_style():
        figure, axes = plt.subplots(
            1, len(sizes), figsize=(2.6 * len(sizes), 2.9), width_ratios=[S for _, S in sizes]
        )
        for axis, (T, S) in zip(np.atleast_1d(axes), sizes, strict=True):
            for t in range(T):
                for s in range(S):
                    seen = s <= S - T + t
                    axis.add_patch(
                        Rectangle(
                            (s, t), 1, 1, facecolor=BLUE if seen else _PAPER, edgecolor="white"
                        )
                    )
            axis.set(xlim=(0, S), ylim=(T, 0), aspect="equal", xlabel="visible token")
            axis.set_xticks(np.arange(S) + 0.5, [str(s) for s in range(S)])
            axis.set_yticks(np.arange(T) + 0.5, [str(S - T + t) for t in range(T)])
            axis.set_title(f"T = {T}, S = {S}")
            axis.tick_params(length=0)
            for side in axis.spines.values():
                side.set_visible(False)
        np.atleast_1d(axes)[0].set_ylabel("new token")
    described = "; ".join(f"{T} new by {S} visible" for T, S in sizes)
    return Picture(
        figure,
        f"Causal masks: {described}. A new token sees every token up to itself, so the last row is "
        f"full and the triangle stands at the right edge.",
        "Blue: may look. All new (left), the last two of five (middle), the last one (right). The "
        "numbers are places in the whole text.",
    )


def draw_cache(
    keys: np.ndarray, words: Sequence[str], n_places: int, n_computed: int, title: str
) -> Picture:
    """Draw one KV head's keys of one layer, in a cache that is being filled.

    Args:
        keys: (S, D), the rows that are held.
        words: the S tokens that they belong to.
        n_places: max_len of the cache.
        n_computed: how many of the rows were computed in this step: the last ones.
        title: what the step did.
    """
    S, D = keys.shape
    with course_style():
        figure, axis = plt.subplots(figsize=(7.5, 0.27 * n_places + 1.2))
        image = axis.imshow(keys, cmap="PuOr", vmin=-3, vmax=3, aspect="auto", extent=(0, D, S, 0))
        axis.add_patch(
            Rectangle((0, S), D, n_places - S, facecolor=_PAPER, edgecolor=GREY, hatch="..", lw=0)
        )
        axis.add_patch(
            Rectangle(
                (0, S - n_computed), D, n_computed, fill=False, edgecolor=VERMILION, linewidth=2.5
            )
        )
        axis.set(
            xlim=(-0.1, D + 0.1), ylim=(n_places, -0.1), title=title, xlabel="component of the key"
        )
        labels = [f"{word}  {place}" for place, word in enumerate(words)]
        labels += [str(place) for place in range(S, n_places)]
        axis.set_yticks(np.arange(n_places) + 0.5, labels)
        axis.tick_params(length=0)
        figure.colorbar(image, ax=axis, label="value", shrink=0.8)
    return Picture(
        figure,
        f"A heat map of {n_places} places by {D} numbers. {S} places hold keys, the last "
        f"{n_computed} of them written in this step; the others are empty.",
        "The framed rows were computed in this step; the ones above were only read, and did not "
        "change; the dotted places are room.",
    )


def draw_copies(copied: Mapping[str, Sequence[int]]) -> Picture:
    """Draw how many old numbers each cache copied at each step.

    Args:
        copied: by name of the cache, the numbers of each step, as `count_copied` counts them.
    """
    colours, told = (ORANGE, BLUE, GREEN), []
    with course_style():
        figure, axis = plt.subplots(figsize=(7.5, 3.2))
        for (name, numbers), colour in zip(copied.items(), colours, strict=False):
            steps = np.arange(1, len(numbers) + 1)
            told.append(f"{name}: {sum(numbers):,}")
            axis.fill_between(steps, numbers, color=colour, alpha=0.25, linewidth=0)
            axis.plot(steps, numbers, color=colour, lw=2.5, label=f"{told[-1]} in all")
        axis.set(xlabel="step", ylabel="old numbers copied", xlim=(1, None))
        axis.set_ylim(-0.03 * max(1, *map(max, copied.values())))
        axis.yaxis.set_major_formatter(EngFormatter())
        axis.legend(loc="upper left")
    return Picture(
        figure,
        f"Old numbers copied at each step. Where a cache grows, a line that rises with every step; "
        f"where it is written in place, a line at 0. Together, {'; '.join(told)}.",
        f"The area under a line is all that was copied. {'; '.join(told)}.",
    )


Times = Mapping[str, Mapping[int, tuple[float, float]]]
"""By name of a model, and for each number of tokens: seconds without a cache, and with one."""


def draw_race(runs: Times, steps: Times) -> Picture:
    """Draw the seconds of whole texts, and how many times faster a single step is with a cache.

    Args:
        runs: seconds to write so many new tokens.
        steps: seconds of one step after so many tokens.
    """
    told, lengths = [], sorted({n for race in steps.values() for n in race})
    shortest, longest = lengths[0], lengths[-1]
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
        for (model, race), line in zip(runs.items(), ("o--", "s-"), strict=False):
            naive, cached = zip(*race.values(), strict=True)
            left.plot(list(race), naive, line, color=ORANGE, label=f"naive, {model}")
            left.plot(list(race), cached, line, color=BLUE, label=f"cached, {model}")
        for (model, race), line in zip(steps.items(), ("o--", "s-"), strict=False):
            ratio = [naive / cached for naive, cached in race.values()]
            right.plot(list(race), ratio, line, color=VERMILION, label=f"time, {model}")
            told.append(f"{ratio[-1]:.0f}-fold for {model}")
        ends = [shortest, longest]
        right.plot(ends, [n + 1 for n in ends], ":", color=GREEN, label="rows of keys, counted")
        left.set(xlabel="new tokens", title="Whole texts: time to write them", ylim=0)
        left.yaxis.set_major_formatter(EngFormatter("s"))
        right.set(xlabel="tokens before the step", title="One step: naive divided by cached")
        right.set(xscale="log", yscale="log", ylim=1, xticks=lengths, xticklabels=lengths)
        right.xaxis.set_minor_locator(NullLocator())
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        for axis in (left, right):
            axis.legend(fontsize=8)
    return Picture(
        figure,
        f"Left: seconds against new tokens; naive climbs faster than cached. Right, on log scales: a "
        f"step without a cache over a step with one. After {longest:,} tokens the rows computed fall "
        f"{longest + 1:,}-fold, the time {' and '.join(told)}.",
        f"Left: all steps of a text together. Right: after {longest:,} tokens a step computes "
        f"{longest + 1:,} times fewer rows; its time on this machine falls {' and '.join(told)} (one "
        f"thread). A part of that is lesson 01's attention, which writes out all scores.",
    )


def draw_bytes(caches: Mapping[str, int]) -> Picture:
    """Draw the bytes of several caches, by name, on one logarithmic scale."""
    names, sizes = list(caches), np.array(list(caches.values()), dtype=float)
    units = EngFormatter("B", places=2)
    with course_style():
        figure, axis = plt.subplots(figsize=(8, 0.5 * len(names) + 1))
        axis.barh(names, sizes, color=BLUE, height=0.6)
        for place, size in enumerate(sizes):
            axis.text(size * 1.3, place, units(size), va="center")
        axis.set(
            xscale="log", xlim=(sizes.min() / 5, sizes.max() * 60), ylim=(len(names) - 0.4, -0.6)
        )
        axis.xaxis.set_major_formatter(EngFormatter("B"))
        axis.set_xlabel("bytes of the KV cache, logarithmic")
    described = "; ".join(f"{name}: {units(size)}" for name, size in zip(names, sizes, strict=True))
    return Picture(
        figure,
        f"Bars on a logarithmic scale. {described}.",
        "The same formula, seven powers of ten apart. The last two bars differ in one size only: "
        "how many key/value heads there are.",
    )
