"""The pictures of lesson 13: a product regrouped, bytes beside other caches, recall against bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course import weights
from course.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, Picture, course_style

SHARED = {"story": 256, "story-g4": 128, "story-g2": 64, "story-g1": 32}
"""Numbers that lesson 06's models keep of a token in a layer."""
LATENTS = {
    "story-latent-48-16": (48, 16),
    "story-latent-16-16": (16, 16),
    "story-latent-24-8": (24, 8),
}
"""Widths of latent and rotated key."""


def trained_latents() -> list[str]:
    """List the siblings of which something was recorded."""
    recorded = json.loads((weights.FOLDER / "metrics.json").read_text(encoding="utf-8"))
    return [name for name in LATENTS if name in recorded]


# --- a product regrouped ----------------------------------------------------------------------------


def draw_regrouping(head_dim: int, rank: int, n_tokens: int) -> Picture:
    """Draw the matrices of one head twice: keys made of all latents, and a query that goes to them."""
    D, n = head_dim, n_tokens
    with course_style():
        figure, panels = plt.subplots(2, 1, figsize=(8.4, 4.2))
        above, below = panels
        at = _box(above, 0, 1, D, GREEN, "q", f"1 × {D}")
        at = _sign(above, at, "· (")
        at = _box(above, at, D, rank, ORANGE, "U of up_k", f"{D} × {rank}")
        at = _sign(above, at, "·")
        at = _box(above, at, rank, n, BLUE, "latents cᵀ", f"{rank} × {n}")
        at = _sign(above, at, ")  =  q ·")
        _box(above, at, D, n, PURPLE, "keys of this head", f"{D} × {n}, made at every step")
        at = _sign(below, 0, "(")
        at = _box(below, at, 1, D, GREEN, "q", f"1 × {D}")
        at = _sign(below, at, "·")
        at = _box(below, at, D, rank, ORANGE, "U of up_k", f"{D} × {rank}")
        at = _sign(below, at, ")  ·")
        at = _box(below, at, rank, n, BLUE, "latents cᵀ", f"{rank} × {n}")
        at = _sign(below, at, "  =")
        at = _box(below, at, 1, rank, PURPLE, "q U", f"1 × {rank}, once")
        at = _sign(below, at, "·")
        _box(below, at, rank, n, BLUE, "latents cᵀ", "as they lie")
        for axes in panels:
            axes.set(xlim=(-1, 109), ylim=(-12, 12))
            axes.set_aspect("equal")
            axes.axis("off")
    return Picture(
        figure,
        f"Matrices of one head as boxes. Above: the query, 1 by {D}, times the product of U, {D} by "
        f"{rank}, and the latents of {n} tokens, {rank} by {n}: that product is the keys, {D} by {n}. "
        f"Below: the query times U first, 1 by {rank}, and then the same latents.",
        f"Above: all keys of the head are made, {D * n} numbers for {n} tokens. Below: the query goes to "
        f"the latents, and only {rank} new numbers (purple) are made. The scores are the same.",
    )


def _box(
    axes: Axes, left: float, rows: int, columns: int, colour: str, name: str, size: str
) -> float:
    """Draw a matrix of these sizes; return where the next thing may stand."""
    axes.add_patch(
        Rectangle((left, -rows / 2), columns, rows, facecolor=colour, alpha=0.75, edgecolor="black")
    )
    middle = left + columns / 2
    axes.text(middle, rows / 2 + 0.7, name, ha="center", va="bottom", fontsize=9)
    axes.text(middle, -rows / 2 - 0.9, size, ha="center", va="top", fontsize=8)
    return left + columns + 1


def _sign(axes: Axes, left: float, sign: str) -> float:
    axes.text(left + 0.4, 0, sign, fontsize=13, va="center")
    return left + 1.2 * len(sign) + 2


# --- bytes ------------------------------------------------------------------------------------------


def draw_bytes(numbers: Mapping[str, int], what: str) -> Picture:
    """Draw the numbers that caches keep, by name; the name "latent" stands out."""
    with course_style():
        figure, axes = plt.subplots(figsize=(8.0, 0.42 * len(numbers) + 0.9))
        colours = [BLUE if name.startswith("latent") else GREY for name in numbers]
        axes.barh(list(numbers), list(numbers.values()), color=colours, height=0.6)
        for place, number in enumerate(numbers.values()):
            axes.text(number, place, f" {number:,}", va="center")
        axes.set(xscale="log", xlim=(50, 4 * max(numbers.values())))
        axes.set(ylim=(len(numbers) - 0.5, -0.5))
        axes.set_xlabel(f"{what} (logarithmic)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    words = "; ".join(f"{name}: {number:,}" for name, number in numbers.items())
    return Picture(
        figure,
        f"Bars, logarithmic: {what}. {words}.",
        f"Blue: rows of latents. They lie between one KV head and eight. {words}.",
    )


# --- recall against bytes ---------------------------------------------------------------------------


def draw_recall(
    recorded: Mapping[str, Mapping[str, float]], chosen: tuple[int, int] | None = None
) -> Picture:
    """Draw how many places are recalled after 100 tokens, by numbers kept of a token in a layer.

    Args:
        recorded: metrics of the models of lesson 06 and of the latent ones, by name.
        chosen: rank and R of a cache whose numbers are marked.
    """

    def places(name: str) -> float:
        return 100 * recorded[name]["recall_place_far"]

    latents = {name: sizes for name, sizes in LATENTS.items() if name in recorded}
    with course_style():
        figure, axes = plt.subplots(figsize=(7.6, 3.6))
        sizes = list(SHARED.values())
        axes.plot(
            sizes,
            [places(name) for name in SHARED],
            "o-",
            color=GREY,
            label="shared heads, lesson 06",
        )
        for (name, size), G in zip(SHARED.items(), (8, 4, 2, 1), strict=True):
            axes.annotate(
                f"G = {G}", (size, places(name)), xytext=(7, -13), textcoords="offset points",
                ha="left", fontsize=9, color="#555555",
            )  # fmt: skip
        for number, (name, (rank, R)) in enumerate(latents.items()):
            axes.plot(
                rank + R, places(name), "s", color=BLUE, markersize=8,
                label="latent + rotated key" if number == 0 else None,
            )  # fmt: skip
            side = 9 if rank + R > 32 else -9  # away from the line
            axes.annotate(
                f"{rank} + {R}", (rank + R, places(name)), xytext=(side, -4),
                textcoords="offset points", ha="left" if side > 0 else "right", fontsize=9,
                color=BLUE,
            )  # fmt: skip
        if chosen:
            axes.axvline(sum(chosen), color=SKY, linestyle=":", lw=2, zorder=0)
            axes.text(sum(chosen), 108, f"{chosen[0]} + {chosen[1]} ", ha="right", fontsize=9)
        axes.set(xscale="log", xlim=(4, 400), ylim=(-4, 116))
        axes.set_xticks([8, 16, 32, 64, 128, 256], ["8", "16", "32", "64", "128", "256"])
        axes.minorticks_off()
        axes.set_xlabel("numbers kept of a token in a layer")
        axes.set_ylabel("places recalled, %")
        axes.legend(loc="lower right", fontsize=9)
    shared_words = ", ".join(f"{size} numbers {places(n):.0f} %" for n, size in SHARED.items())
    latent_words = ", ".join(f"{r} + {R} recall {places(n):.0f} %" for n, (r, R) in latents.items())
    return Picture(
        figure,
        f"Places recalled after 100 tokens or more, by numbers kept of a token in a layer. Shared heads: "
        f"{shared_words}. Latents: {latent_words}.",
        f"Of 200 stories, as recorded; one seed each. Latents: {latent_words}."
        + (f" Dotted: {sum(chosen)} numbers." if chosen else ""),
    )
