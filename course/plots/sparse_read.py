"""The pictures of lesson 14: which rows a step needs, what is found with few of them, page sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from course.given.sparse import dense_rows, questions_about_places
from course.model import MiniGPT
from course.plots.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, Picture, course_style

COLOURS = (GREY, BLUE, VERMILION, ORANGE, GREEN)
N_BEST, N_KEPT = 16, 24


def draw_marks(model: MiniGPT, layer: int, head: int) -> Picture:
    """Draw which rows one head looks at most in each step of a story, and which rows would have been kept
    by all attention before a question."""
    asked = questions_about_places(1)[-1]
    q, k, _ = (x[0, head] for x in dense_rows(model, asked.tokens)[layer])  # (T, D) each
    T = asked.answer
    scores = (q[:T] @ k[:T].T / math.sqrt(q.shape[1])).masked_fill(
        ~torch.ones(T, T, dtype=torch.bool).tril(), -math.inf
    )
    weights = scores.softmax(dim=-1)
    best = torch.zeros(T, T).scatter(1, weights.topk(N_BEST).indices, 1).tril().numpy()
    kept = np.zeros(T)
    kept[weights[: asked.where, : asked.where].sum(0).topk(N_KEPT).indices.numpy()] = 1
    needed = best[asked.where :].max(0) * (np.arange(T) < asked.where)
    lost = int((needed * (1 - kept)).sum())
    with course_style():
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(8.4, 6.2), sharex=True, gridspec_kw={"height_ratios": [6, 1]}
        )
        above.imshow(best, cmap=ListedColormap(["#F4F4F4", BLUE]), aspect="auto")
        above.axhline(asked.where - 0.5, color=VERMILION, lw=1)
        above.text(T + 1, asked.where, '"Where"', va="center", color=VERMILION)
        above.set(
            ylabel="step", title=f"Layer {layer}, head {head}: the {N_BEST} best rows of each step"
        )
        strips = np.stack([needed, 2 * kept])
        below.imshow(strips, cmap=ListedColormap(["#F4F4F4", BLUE, ORANGE]), aspect="auto")
        below.set_yticks([0, 1], ["needed from then on", f"{N_KEPT} kept before"])
        below.set_xlabel("row of the cache")
    return Picture(
        figure,
        f"Above, a mark for each of the {N_BEST} rows with the largest weights, steps downwards and rows "
        f"across: some columns run through, most marks stand alone. Below, {int(needed.sum())} earlier "
        f"rows that are among the best of some step from the question on, and the {N_KEPT} that had most "
        f"attention before it.",
        f"A mark is a row that is among the best {N_BEST} of that step. Below, in blue, the earlier rows "
        f"that the steps from the question on look at; in orange the {N_KEPT} that got most attention "
        f"before it. {lost} of the {int(needed.sum())} blue ones are not among the orange.",
    )


def draw_found(
    found: Mapping[str, Sequence[float]], budgets: Sequence[int], n_asked: int
) -> Picture:
    """Draw the part of the places that is found, over how many rows are read, a line for each way."""
    with course_style():
        figure, axes = plt.subplots(figsize=(9.2, 3.6))
        for (name, shares), colour in zip(found.items(), COLOURS, strict=False):
            axes.plot(budgets, [100 * share for share in shares], "o-", color=colour, label=name)
        axes.set(
            ylim=(-4, 104),
            xlabel="rows attended to in a step, bounds not counted",
            ylabel="places found, %",
        )
        axes.set_xticks(budgets)
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    lines = "; ".join(
        f"{name}: "
        + ", ".join(f"{share:.0%} with {n}" for share, n in zip(shares, budgets, strict=True))
        for name, shares in found.items()
    )
    with_24 = ", ".join(
        f"{name} {shares[list(budgets).index(24)]:.0%}" for name, shares in found.items()
    )
    return Picture(
        figure,
        f"Places found against rows read in a step, a line for each way. {lines}.",
        f"{n_asked} places, each said at least 32 tokens before. With 24 rows: {with_24}.",
    )


def rows_fetched(S: int, n: int, size: float) -> tuple[float, float]:
    """Compute what a step fetches of S tokens by n pages, in rows: bounds, and the pages themselves."""
    return S / size, n * size


def draw_bytes(S: int, n: int) -> Picture:
    """Draw what a step fetches, over the size of a page: bounds, chosen pages, both."""
    with course_style():
        figure, axes = plt.subplots(figsize=(7.4, 3.2))
        least = _draw_curves(axes, S, n)
        axes.axhline(S, color=GREY, lw=1)
        axes.text(64, S * 1.15, "all rows", color=GREY)
    bounds, rows = rows_fetched(S, n, least)
    return Picture(
        figure,
        f"Rows fetched over the size of a page, both axes logarithmic: bounds fall, pages rise, and "
        f"their sum is least at {least:.0f}.",
        f"{S:,} tokens, {n} pages a step. At p = √(S / n) = {least:.0f} both parts are the same: "
        f"{bounds:,.0f} rows' worth of bounds and {rows:,.0f} rows, {(bounds + rows) / S:.1%} of all.",
    )


def _draw_curves(axes: Axes, S: int, n: int) -> float:
    """Draw both parts and their sum; return the size of a page at which the sum is least."""
    sizes = np.geomspace(1, max(2, min(S / n * 4, S)), 80)
    bounds, rows = rows_fetched(S, n, sizes)
    axes.plot(sizes, bounds, "--", color=SKY, label="bounds, S / p")
    axes.plot(sizes, rows, "--", color=ORANGE, label="chosen pages, n · p")
    axes.plot(sizes, bounds + rows, color=BLUE, label="both")
    least = math.sqrt(S / n)
    axes.axvline(least, color=GREEN, ls=":", label="p = √(S / n)")
    axes.set(xscale="log", yscale="log", xlabel="tokens of a page", ylabel="rows' worth of numbers")
    axes.set_xscale("log", base=2)
    axes.legend(fontsize=8)
    return least


def draw_way(share: float, n_asked: int, way: str, S: int, n: int, size: int) -> Picture:
    """Draw what one way of reading finds, beside what it fetches.

    Args:
        share: of the places, 0 … 1.
        way: "skip" or "evict".
        S: rows of the cache.
        n, size: pages that are read, or n · size rows that are kept.
    """
    bounds, rows = rows_fetched(S, n, size)
    fetched = min(rows, S) + (bounds if way == "skip" else 0)
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(0.6, 1))
        left.bar(
            ["found", "fetched"], [100 * share, 100 * fetched / S], color=[GREEN, BLUE], width=0.5
        )
        for x, value in enumerate((100 * share, 100 * fetched / S)):
            left.text(x, value + 2, f"{value:.0f} %", ha="center")
        left.axhline(100, color=GREY, lw=1)
        left.set(
            ylim=(0, max(112, 100 * fetched / S + 14)), title=f"{way}: {n} × {size} rows of {S}"
        )
        least = _draw_curves(right, S, n)
        if way == "skip":
            right.plot([size], [bounds + rows], "o", color=VERMILION)
        else:
            right.plot([size], [min(rows, S)], "o", color=VERMILION)
    return Picture(
        figure,
        f"Bars: {share:.0%} of the places found, {fetched / S:.0%} of all rows' worth fetched in a step. "
        f"Beside, both parts of what is fetched over the size of a page, least at {least:.1f}.",
        f"{way}: {n} × {size} rows; {share:.0%} of {n_asked} places are found. A step fetches "
        f"{fetched:.0f} rows' worth of {S}"
        + (f", {bounds:.0f} of them bounds." if way == "skip" else "; the others are gone."),
    )
