"""The pictures of lesson 06: who reads whom, quality against bytes, the roof, and what fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from course.measure.costs import Cost
from course.measure.limits import Machine
from course.model.config import GPTConfig
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

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, "#F0E442", GREY)
Quality = Mapping[int, Mapping[str, float]]
"""What `evaluate` found, by number of KV heads."""


# --- who reads whom ------------------------------------------------------------------------------


def draw_sharing(n_heads: int, kv_heads: Sequence[int]) -> Picture:
    """Draw query heads above the KV heads that they read, a panel for each number of KV heads."""
    with course_style():
        figure, panels = plt.subplots(1, len(kv_heads), figsize=(3.1 * len(kv_heads), 1.9))
        for axes, G in zip(np.atleast_1d(panels), kv_heads, strict=True):
            _draw_groups(axes, n_heads, G)
    panels_text = "; ".join(
        f"{n_heads} query heads on {G} KV head{'s' * (G > 1)}, {n_heads // G} on each"
        for G in kv_heads
    )
    return Picture(
        figure,
        f"Query heads in a row above, KV heads below, lines between those that belong together. "
        f"{panels_text}. Neighbouring query heads share.",
        f"Above: {n_heads} query heads. Below: the keys and values that they read, and that a cache "
        f"stores. Neighbours share a KV head.",
    )


def _draw_groups(axes: Axes, H: int, G: int) -> None:
    group, names = H // G, {1: "MQA", H: "MHA"}
    for h in range(H):
        g = h // group
        middle = (g + 0.5) * group
        axes.plot([h + 0.5, middle], [1.0, 0.45], color=GREY, lw=1, zorder=0)
        _draw_head(axes, h + 0.5, 1.0, COLOURS[g % len(COLOURS)], 0.35, str(h))
    for g in range(G):
        _draw_head(axes, (g + 0.5) * group, 0.2, COLOURS[g % len(COLOURS)], 0.9, str(g))
    axes.set(xlim=(0, H), ylim=(0.1, 1.35), title=f"{names.get(G, 'GQA')}: G = {G}")
    axes.set_yticks([0.32, 1.12], ["K, V", "Q"])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_head(
    axes: Axes, middle: float, bottom: float, colour: str, alpha: float, name: str
) -> None:
    axes.add_patch(
        Rectangle((middle - 0.4, bottom), 0.8, 0.25, facecolor=colour, alpha=alpha, lw=0)
    )
    axes.text(middle, bottom + 0.11, name, ha="center", va="center", fontsize=8)


# --- quality against bytes -----------------------------------------------------------------------


def draw_quality(cache: Mapping[int, int], trained: Quality, pooled: Quality) -> Picture:
    """Draw what models with fewer KV heads remember, and what their cache takes.

    Args:
        cache: bytes of one token, by number of KV heads.
        trained: quality after the training that follows pooling.
        pooled: quality before it.
    """
    heads = sorted(cache, reverse=True)
    labels = [f"G = {G}\n{cache[G]:,} B" for G in heads]
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.6))
        _draw_recall(left, heads, trained, pooled)
        _draw_perplexity(right, heads, trained, pooled)
        for axes in (left, right):
            axes.set_xticks(range(len(heads)), labels)
            axes.set_xlabel("KV heads, and bytes of the cache per token")
    models = "; ".join(
        f"G = {G}, {cache[G]:,} bytes a token: places {trained[G]['recall_place_far']:.0%} "
        f"({pooled[G]['recall_place_far']:.0%} before training), surnames "
        f"{trained[G]['recall_surname_far']:.0%} ({pooled[G]['recall_surname_far']:.0%}), perplexity "
        f"{trained[G]['perplexity']:.3g} ({pooled[G]['perplexity']:.3g})"
        for G in heads
    )
    return Picture(
        figure,
        f"Two panels, fewer KV heads to the right. Left: share of places and surnames recalled "
        f"that were last said 100 tokens or more ago. Right: perplexity, logarithmic. {models}.",
        "Filled: the siblings as shipped. Hollow and dotted: the same heads averaged, and nothing "
        "learned since. The cache halves with every step to the right.",
    )


def _draw_recall(axes: Axes, heads: Sequence[int], trained: Quality, pooled: Quality) -> None:
    for kind, colour, marker in (("surname", SKY, "o"), ("place", BLUE, "s")):
        label = f"{kind}s, of {trained[heads[0]][f'questions_{kind}_far']}"
        for quality, line, when in ((trained, "-", ""), (pooled, ":", ", only pooled")):
            axes.plot(
                range(len(heads)),
                [100 * quality[G][f"recall_{kind}_far"] for G in heads],
                marker + line,
                color=colour,
                markerfacecolor=colour if quality is trained else "white",
                label=label + when,
            )
    axes.set(title="Recalled from 100 tokens back or more", ylim=(-3, 104))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.legend(fontsize=8, loc=(0.34, 0.4))


def _draw_perplexity(axes: Axes, heads: Sequence[int], trained: Quality, pooled: Quality) -> None:
    for quality, line, fill, label in (
        (trained, "o-", VERMILION, "trained on"),
        (pooled, "o:", "white", "only pooled"),
    ):
        perplexity = [quality[G]["perplexity"] for G in heads]
        axes.plot(perplexity, line, color=VERMILION, markerfacecolor=fill, label=label)
        for place in enumerate(perplexity):
            if quality is pooled and place[1] == trained[heads[place[0]]]["perplexity"]:
                continue  # the same point, which has its label
            axes.annotate(
                f"{place[1]:.3g}",
                place,
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set(title="Perplexity", yscale="log", ylim=(1, 2 * axes.get_ylim()[1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(fontsize=8, loc="upper left")


# --- published models ----------------------------------------------------------------------------


def draw_published(configs: Mapping[str, GPTConfig], per_token: Mapping[str, int]) -> Picture:
    """Draw the bytes that models keep of one token, beside what they would keep without sharing."""
    names = list(configs)
    unshared = [per_token[n] * configs[n].n_heads // configs[n].n_kv_heads for n in names]
    sizes = [per_token[name] for name in names]
    with course_style():
        figure, axes = plt.subplots(figsize=(8.4, 0.33 * len(names) + 1))
        rows = np.arange(len(names))
        axes.barh(rows, unshared, height=0.7, facecolor="white", edgecolor=GREY, hatch="..", lw=0.8)
        axes.barh(rows, sizes, height=0.7, color=BLUE)
        for row, (name, whole) in enumerate(zip(names, unshared, strict=True)):
            config = configs[name]
            of_whole = f" of {whole:,}" * (whole > per_token[name])
            words = (
                f" {per_token[name]:,}{of_whole} B, G = {config.n_kv_heads} of H = {config.n_heads}"
            )
            axes.text(whole, row, words, va="center", fontsize=8)
        axes.set_yticks(rows, names)
        axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, 1.5 * max(unshared)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} MB"))
        axes.set_xlabel("cache of one token, 16 bits")
    bars = "; ".join(
        f"{name} {size:,} bytes, {whole:,} without sharing"
        for name, size, whole in zip(names, sizes, unshared, strict=True)
    )
    return Picture(
        figure,
        f"Horizontal bars, what models keep of one token in 16 bits. {bars}.",
        "Blue: what is kept of one token. Dotted: what it would be if every query head had keys of its "
        "own. Where nothing is dotted, G = H.",
    )


# --- the roof ------------------------------------------------------------------------------------


def draw_decode_points(
    phase_cost: Callable[..., Cost],
    attainable: Callable[[float, Machine], float],
    fits: Callable[[GPTConfig, int, int], bool],
    machine: Machine,
    configs: Mapping[int, GPTConfig],
    contexts: Sequence[int],
    batch: int,
) -> Picture:
    """Draw decode steps under a machine's roof as the context grows, for numbers of KV heads.

    Args:
        phase_cost, attainable: lesson 05's.
        fits: whether a batch of sequences of some tokens finds room; what does not is hollow.
        machine: whose roof it is.
        configs: of the models, by number of KV heads.
        contexts: tokens cached in each row, shortest first.
        batch: rows decoded together.
    """
    slides = []
    with course_style():
        figure, panels = plt.subplots(1, len(configs), figsize=(9.6, 3.1), sharey=True)
        for axes, (G, config) in zip(np.atleast_1d(panels), configs.items(), strict=True):
            costs = [phase_cost(config, 1, context, batch) for context in contexts]
            points = [(c.intensity, attainable(c.intensity, machine)) for c in costs]
            rooms = [fits(config, batch, context) for context in contexts]
            shared = config.n_heads // G
            _draw_slide(axes, points, rooms, contexts)
            ends = np.array([0.4, machine.balance, 4 * machine.balance])
            axes.plot(ends, [attainable(x, machine) for x in ends], color=GREY, zorder=0)
            axes.axvline(shared, color=ORANGE, linestyle=":", zorder=0)
            axes.set(xscale="log", yscale="log", xlim=(0.4, 4 * machine.balance))
            axes.set(title=f"G = {G}: H / G = {shared}", xlabel="FLOP/byte")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: with_prefix(y, "FLOP/s")))
            axes.minorticks_off()
            seconds = [c.flops / attainable(c.intensity, machine) for c in costs]
            slides.append(
                f"G = {G}: {points[0][0]:.3g} to {points[-1][0]:.3g} FLOP/byte, "
                f"{seconds[0] * 1e3:.3g} to {seconds[-1] * 1e3:.3g} ms a step"
            )
    span = f"from {contexts[0]:,} to {contexts[-1]:,} tokens"
    return Picture(
        figure,
        f"The roof of {machine.name}, once for each number of KV heads. On its slope, decode steps of "
        f"{batch} rows, {span} of context. {'; '.join(slides)}. A dotted line stands at H / G.",
        f"{batch} conversations on {machine.name} (datasheet), {span}. Hollow: so much does not fit into "
        f"its memory. Dotted: H / G. All FLOPs and bytes of a step are added first; in parts, as in "
        f"lesson 05, a step takes as long or longer. {'; '.join(slides)}.",
    )


def _draw_slide(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    rooms: Sequence[bool],
    contexts: Sequence[int],
) -> None:
    """Draw points on a roof, solid where there is room; name the context of the first and last. Hollow
    ones are drawn first and larger, so that they show where a solid one has the same place."""
    for room, (x, y) in sorted(zip(rooms, points, strict=True)):
        face, size = (BLUE, 6) if room else ("white", 10)
        axes.plot(x, y, "o", color=BLUE, markerfacecolor=face, markersize=size)
    (first, _), (last, _) = points[0], points[-1]
    apart = first > 1.5 * last
    ends = (0, -1) if apart else (0,)
    for end in ends:
        words = f"{contexts[end]:,}" if apart else f"{contexts[0]:,} … {contexts[-1]:,}"
        axes.annotate(
            words, points[end], xytext=(9, -5), textcoords="offset points", fontsize=8, va="top"
        )


# --- what fits -----------------------------------------------------------------------------------


def draw_memory(
    memory_bytes: int, weight_bytes: int, sequence_bytes: int, n: int, title: str
) -> Picture:
    """Draw a memory with weights in it and as many sequences as were said to fit.

    Args:
        n: sequences.
        title: what model, how long a text.
    """
    end = max(memory_bytes, weight_bytes + n * sequence_bytes) / 1e9
    with course_style():
        figure, axes = plt.subplots(figsize=(8.4, 1.9))
        axes.barh(0, weight_bytes / 1e9, color=GREY, height=0.6)
        drawn = min(n, 400)  # more than that are one colour anyway
        width = n * sequence_bytes / 1e9 / max(drawn, 1)
        for i in range(drawn):
            left = weight_bytes / 1e9 + i * width
            colour = BLUE if i % 2 else SKY
            axes.barh(0, width, left=left, color=colour, height=0.6, lw=0)
        axes.axvline(memory_bytes / 1e9, color=VERMILION, lw=2)
        axes.text(memory_bytes / 1e9, 0.42, "memory ends ", color=VERMILION, fontsize=9, ha="right")
        axes.set(xlim=(0, 1.04 * end), ylim=(-0.4, 0.62), title=title, xlabel="GB")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    words = (
        f"Weights {with_prefix(weight_bytes, 'B')}, one sequence {with_prefix(sequence_bytes, 'B')}: "
        f"{n:,} sequence{'s' * (n != 1)} fit."
    )
    return Picture(
        figure,
        f"A bar of {memory_bytes / 1e9:.3g} GB of memory: {words} {title}.",
        f"{words} Grey: weights. Blue: sequences.",
    )
