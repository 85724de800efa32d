"""The pictures of lesson 08: a ring, the edge of a window, which layers need none, sinks, bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter
from torch import Tensor

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
from course.plots.units import with_prefix
from course.published.models import PUBLISHED

Recall = Sequence[tuple[float, int]]
"""By span of distances: the part of the questions that were answered right, and how many there were."""


# --- the mask and the ring -----------------------------------------------------------------------


def draw_ring(n_tokens: int, window: int, n_sinks: int) -> Picture:
    """Draw which tokens see which, and which token lies in which place after each step."""
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=(1, 0.8))
        for i in range(n_tokens):
            for j in range(i + 1):
                seen = j < n_sinks or i - j < window
                sink = j < n_sinks
                colour = (ORANGE if sink else BLUE) if seen else "#E8E8E8"
                left.add_patch(Rectangle((j - 0.45, i - 0.45), 0.9, 0.9, color=colour, lw=0))
        left.set(xlabel="token that is seen", ylabel="token that looks", title="who sees whom")
        _square(left, n_tokens, n_tokens)
        places: list[int | None] = [None] * (n_sinks + window)
        for i in range(n_tokens):
            sink = i < n_sinks
            place = i if sink else n_sinks + (i - n_sinks) % window
            places[place] = i
            for p, token in enumerate(places):
                if token is not None:
                    colour = ORANGE if p < n_sinks else BLUE if p == place else SKY
                    right.add_patch(Rectangle((p - 0.45, i - 0.45), 0.9, 0.9, color=colour, lw=0))
                    ink = "white" if colour == BLUE else "black"
                    right.text(p, i, token, ha="center", va="center", color=ink, fontsize=9)
        right.set(xlabel="place in the storage", ylabel="after token", title="what lies where")
        _square(right, n_sinks + window, n_tokens)
    return Picture(
        figure,
        f"Left, a grid of {n_tokens} by {n_tokens} tokens: each sees itself, the {window - 1} before it "
        f"and the first {n_sinks}; what is between is grey. Right, {n_sinks + window} places after each "
        f"token: the first {n_sinks} stay, the others are overwritten in turn.",
        f"Orange: sinks. Blue: the window, of {window}. Grey: no longer seen. On the right each row is "
        f"the storage after one more token, and the number in a place says whose row lies there; dark "
        f"blue was just written.",
    )


def _square(axes: Axes, width: int, height: int) -> None:
    axes.set(xlim=(-0.6, width - 0.4), ylim=(height - 0.4, -0.6), aspect="equal")
    axes.set_xticks(range(width))
    axes.set_yticks(range(height))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw_mask(axes: Axes, mask: np.ndarray, n_sinks: int) -> None:
    """Draw a mask (T, T) that was computed, sinks in their colour."""
    shades = np.where(mask, 2.0, 0.0)
    shades[:, :n_sinks] *= 0.5
    axes.imshow(
        shades,
        cmap=ListedColormap(["#F4F4F4", ORANGE, BLUE]),
        vmin=0,
        vmax=2,
        interpolation="nearest",
    )
    axes.set(
        xlabel="token that is seen", ylabel="token that looks", title="mask of a windowed layer"
    )


def draw_lost(mask: Tensor, held: Sequence[int], new: Sequence[int]) -> Picture:
    """Draw which rows new tokens need, and which of these an `append` that writes at once would destroy.

    Args:
        mask: (T, held + T) bool, which row each new token sees.
        held, new: numbers of the tokens whose rows are held, as many as the window is wide, and of the
            new ones.
    """
    needed = mask.numpy()
    lost = needed & np.isin([*held, *new], held)[None, :]
    with course_style():
        figure, axis = plt.subplots(figsize=(5.2, 2.9))
        axis.imshow(
            needed.astype(int) + lost,
            cmap=ListedColormap(["#F4F4F4", BLUE, VERMILION]),
            vmin=0,
            vmax=2,
            interpolation="nearest",
        )
        for row, column in np.argwhere(lost):
            axis.text(column, row, "×", ha="center", va="center", color="white", weight="bold")
        axis.axvline(len(held) - 0.5, color=GREY)
        _square(axis, len(held) + len(new), len(new))
        axis.set_xticklabels([*held, *new])
        axis.set_yticklabels(new)
        axis.set(xlabel="held rows | new rows", ylabel="token that looks")
    return Picture(
        figure,
        f"A table of which of tokens {held[0]} to {new[-1]} the new tokens {new[0]} to {new[-1]} see, "
        f"each {len(held)}. Of these {needed.sum()} rows, {lost.sum()} are held ones, with a cross.",
        f"Blue: a new row that is seen. Orange with a cross: a row that is held, still needed, and gone "
        f"if the new ones were written at once. That is {lost.sum()} of the {needed.sum()} rows needed.",
    )


# --- where memory ends ---------------------------------------------------------------------------


def draw_cliffs(edges: Sequence[int], found: Mapping[int, tuple[Recall, float]]) -> Picture:
    """Draw recall by distance for several windows.

    Args:
        edges: of the distances.
        found: by window, the recall of each span and the perplexity; the largest hides nothing.
    """
    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    with course_style():
        figure, axes = plt.subplots(figsize=(9.2, 3.4))
        colours = dict(zip(sorted(found), (VERMILION, ORANGE, BLUE, GREY), strict=False))
        for window, (recall, perplexity) in sorted(found.items()):
            name = f"W = {window}" if window < edges[-1] else "no window"
            share = [100 * part for part, _ in recall]
            label = f"{name}: perplexity {perplexity:.2f}"
            axes.plot(middles, share, "o-", color=colours[window], label=label)
            if window < edges[-1]:
                axes.axvline(window, color=colours[window], linestyle=":")
        axes.set(ylim=(-4, 104), xlim=(0, edges[-1]), xlabel="tokens since the fact was told")
        axes.set(title="Facts recalled")
        axes.set_xticks(edges)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    spans = [f"{a} to {b - 1}" for a, b in pairwise(edges)]
    lines = "; ".join(
        f"{f'window {window}' if window < edges[-1] else 'no window'}: "
        + ", ".join(f"{part:.0%} at {span}" for span, (part, _) in zip(spans, recall, strict=True))
        for window, (recall, _) in sorted(found.items())
    )
    asked = ", ".join(str(n) for _, n in next(iter(found.values()))[0])
    return Picture(
        figure,
        f"Recall against the tokens since a fact was told, a line for each window. {lines}.",
        f"Each point is a span of distances between two ticks (questions: {asked}); dotted: where the "
        f"window of that colour ends. Guessing gives some 5 %.",
    )


def draw_full_layers(
    recalls: Mapping[tuple[int, ...], float], n_questions: int, rows: int, window: int
) -> Picture:
    """Draw recall of far facts by which layers keep every token.

    Args:
        recalls: by the layers that do.
        n_questions: that were asked.
        rows: tokens of a text, for what is kept of it.
        window: of the other layers.
    """
    names = [_layers(full) for full in recalls]
    shares = [100 * part for part in recalls.values()]
    kept = [(len(full) * rows + (4 - len(full)) * window) / (4 * rows) for full in recalls]
    with course_style():
        figure, axes = plt.subplots(figsize=(8.4, 3.1))
        colours = [GREEN if share > 50 else GREY for share in shares]
        axes.bar(range(len(names)), shares, color=colours, width=0.6)
        for x, (share, part) in enumerate(zip(shares, kept, strict=True)):
            words = f"{share:.0f} %\n({part:.0%} of the rows)"
            axes.text(x, share + 2, words, ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(len(names)), names)
        axes.set(ylim=(0, 128), yticks=range(0, 101, 25), ylabel="far facts recalled, %")
        axes.set(xlabel=f"layers that keep every token; the others see {window}")
    bars = "; ".join(f"{n}: {s:.0f} %" for n, s in zip(names, shares, strict=True))
    return Picture(
        figure,
        f"Bars: far facts recalled, by which of four layers keep every token. {bars}.",
        f"{n_questions} questions about facts told 100 tokens ago and more. In brackets: the rows that "
        f"are kept of a text of {rows} tokens, beside those of a full cache.",
    )


def _layers(full: tuple[int, ...]) -> str:
    return {0: "none", 1: "layer "}.get(len(full), "layers ") + " and ".join(map(str, full))


# --- steps, sinks, bytes -------------------------------------------------------------------------


def draw_steps(
    steps: Mapping[int, Mapping[str, Sequence[float]]], n_bytes: Mapping[str, int]
) -> Picture:
    """Draw the seconds of a decode step by the tokens before it.

    Args:
        steps: by tokens, the seconds of each round for "ring" and "full".
        n_bytes: of the two caches.
    """
    medians = {
        name: [1e3 * float(np.median(times[name])) for times in steps.values()]
        for name in ("ring", "full")
    }
    with course_style():
        figure, axes = plt.subplots(figsize=(6.4, 2.7))
        for name, colour in (("ring", BLUE), ("full", GREY)):
            label = f"{name}: {n_bytes[name]:,} bytes"
            axes.plot(list(steps), medians[name], "o-", color=colour, label=label)
        top = max(map(max, medians.values()))
        axes.set(ylim=(0, 1.25 * top), xlabel="tokens before the step", ylabel="ms a step")
        axes.set_xticks(list(steps))
        axes.legend(fontsize=8, loc="lower right")
    words = "; ".join(
        f"{name} {', '.join(f'{ms:.2f}' for ms in medians[name])} ms" for name in medians
    )
    return Picture(
        figure,
        f"Milliseconds of a step after {', '.join(map(str, steps))} tokens: {words}.",
        f"Medians of interleaved rounds, one thread. {words}, after "
        f"{', '.join(map(str, steps))} tokens.",
    )


def draw_sinks(shares: Tensor, without: float, with_four: float) -> Picture:
    """Draw how much of its attention each head gives to the first token.

    Args:
        shares: (L, H).
        without, with_four: perplexity with a window of 32, without sinks and with four.
    """
    L, H = shares.shape
    with course_style():
        figure, axes = plt.subplots(figsize=(6.8, 2.4))
        image = axes.imshow(100 * shares.numpy(), vmin=0, vmax=100, cmap="viridis", aspect="auto")
        for layer in range(L):
            for head in range(H):
                text = f"{100 * shares[layer, head]:.1f}"
                axes.text(head, layer, text, ha="center", va="center", color="white", fontsize=8)
        axes.set(xlabel="head", ylabel="layer", title="attention that goes to token 0, %")
        axes.set_xticks(range(H))
        axes.set_yticks(range(L))
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label="%")
    most = 100 * float(shares.max())
    return Picture(
        figure,
        f"A table of {L} layers by {H} heads: the part of its attention that each gives to token 0. The "
        f"largest is {most:.1f} %.",
        f"No bright cell: the most that any head gives to token 0 is {most:.1f} %. In a model with sinks "
        f"many cells would be yellow. Perplexity with a window of 32: {without:.3f}, with four first "
        f"tokens kept {with_four:.3f}.",
    )


def draw_bytes(windowed_cache_bytes: Callable[..., int]) -> Picture:
    """Draw the bytes of a cache against the text, by how many layers have a window."""
    config = PUBLISHED["Llama-3-8B"].config
    lengths = [2**n for n in range(8, 18)]
    lines = (
        (32, "every layer full", GREY),
        (5, "5 of 32 layers full", BLUE),
        (0, "none", VERMILION),
    )
    with course_style():
        figure, axes = plt.subplots(figsize=(7.4, 3.2))
        for n_full, name, colour in lines:
            sizes = [windowed_cache_bytes(config, n, 1024, n_full_layers=n_full) for n in lengths]
            axes.plot(lengths, sizes, "o-", color=colour, label=name)
        axes.set(
            xscale="log", yscale="log", xlabel="tokens of the text", title="bytes of one cache"
        )
        axes.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: with_prefix(y, "B")))
        axes.minorticks_off()
        axes.legend(fontsize=8)
    ends = "; ".join(
        f"{name} {with_prefix(windowed_cache_bytes(config, lengths[-1], 1024, n_full_layers=n), 'B')}"
        for n, name, _ in lines
    )
    return Picture(
        figure,
        f"Bytes against tokens, both logarithmic, windows of 1,024. At {lengths[-1]:,} tokens: {ends}.",
        f"A model of Llama 3 8B's sizes, 16 bits, windows of 1,024. At {lengths[-1]:,} tokens: {ends}. "
        f"The full layers decide.",
    )


def draw_choice(
    mask: np.ndarray, n_sinks: int, recall: Recall, edges: Sequence[int], sizes: tuple[int, int]
) -> Picture:
    """Draw a mask, the recall by distance that goes with it, and its bytes beside those of a full cache.

    Args:
        mask: (T, T) of a layer with a window.
        recall: by span of distances, between the edges.
        sizes: bytes of this cache, and of a full one.
    """
    with course_style():
        figure, (left, middle, right) = plt.subplots(
            1, 3, figsize=(9.6, 2.9), width_ratios=(1, 1.3, 0.6)
        )
        draw_mask(left, mask, n_sinks)
        spans = [f"{a}–{b - 1}" for a, b in pairwise(edges)]
        middle.bar(spans, [100 * part for part, _ in recall], color=GREEN, width=0.7)
        middle.set(
            ylim=(0, 104), title="facts recalled, %", xlabel="tokens since the fact was told"
        )
        middle.tick_params(axis="x", labelsize=8)
        right.bar(["this", "full"], [n / 1e3 for n in sizes], color=[BLUE, PURPLE], width=0.6)
        right.set(title="kB after 250 tokens")
    words = ", ".join(f"{part:.0%} at {s}" for s, (part, _) in zip(spans, recall, strict=True))
    return Picture(
        figure,
        f"Left: the mask of a layer with a window. Middle: facts recalled, {words}. Right: {sizes[0]:,} "
        f"bytes, beside {sizes[1]:,} of a full cache.",
        f"Facts recalled by the tokens since they were told: {words}. Cache: {sizes[0]:,} bytes beside "
        f"{sizes[1]:,}. Layers with a tick keep every token.",
    )
