"""The pictures of lesson 12: the time of a longer pass, drafts, rejection, and what to expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

from course.drafts.race import Tally
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ON_A_LINE,
    ORANGE,
    SKY,
    VERMILION,
    Picture,
    course_style,
)
from course.world.tokenizer import WORDS

_COLOURS = {"drafted": SKY, "corrected": ORANGE, "bonus": GREEN}
_ODDS = {"q": (0.38, 0.30, 0.12, 0.08, 0.12), "p": (0.16, 0.22, 0.34, 0.20, 0.08)}
"""Of five tokens, drawn by hand: of a draft, and of the model that verifies."""


def draw_pass_times(times: Mapping[int, Sequence[float]]) -> Picture:
    """Draw how long a pass takes, in units of a pass over one token.

    Args:
        times: seconds of a pass by its tokens, all rounds; those of one token among them.
    """
    one = min(times[1])
    ratios = {n: min(seconds) / one for n, seconds in times.items()}
    with course_style():
        figure, axis = plt.subplots(figsize=(7.0, 3.0))
        axis.plot(list(ratios), list(ratios), ":", color=GREY, label="one after another")
        axis.plot(list(ratios), list(ratios.values()), "o-", color=BLUE, label="in one pass")
        axis.set(xlabel="tokens", ylabel="time, in passes of one token")
        axis.set(xlim=(0, max(ratios) + 1), ylim=(0, 3.2 * max(ratios.values())))
        axis.legend(loc="upper right")
    in_words = ", ".join(f"{n} tokens {ratio:.2f}" for n, ratio in ratios.items() if n > 1)
    return Picture(
        figure,
        f"A dotted line that climbs with the number of tokens, and far below it a flat one: {in_words}.",
        f"Measured here. A pass takes, in units of a pass over one token: {in_words}.",
    )


def draw_drafts(found: Mapping[str, Tally]) -> Picture:
    """Draw tokens a pass and the speed-up of each draft, side by side."""
    per_pass = [tally.per_pass for tally in found.values()]
    faster = [tally.faster for tally in found.values()]
    with course_style():
        figure, axes = plt.subplots(1, 2, figsize=(8.8, 0.36 * len(found) + 1.2), sharey=True)
        for axis, values, title, colours in (
            (axes[0], per_pass, "tokens a pass", [BLUE] * len(found)),
            (axes[1], faster, "times as fast", [BLUE if x > 1 else VERMILION for x in faster]),
        ):
            axis.barh(list(found), values, color=colours, height=0.65)
            for place, value in enumerate(values):
                beside = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
                axis.annotate(f"{value:.2f}", (value, place), bbox=ON_A_LINE, **beside)
            axis.axvline(1, color=GREY, linestyle=":")
            axis.set(title=title, xlim=(0, 1.22 * max(values)), ylim=(len(found) - 0.5, -0.5))
            axis.set_xticks([])
            axis.grid(visible=False)
    in_words = "; ".join(
        f"{name} {tally.per_pass:.2f} and {tally.faster:.2f}" for name, tally in found.items()
    )
    slower = [name for name, tally in found.items() if tally.faster < 1]
    return Picture(
        figure,
        f"Two groups of bars, tokens a pass and how many times as fast as plain decoding: {in_words}.",
        f"Dotted: plain decoding. Measured here, the same texts in turn. Slower than no draft at all: "
        f"{', '.join(slower) or 'none'}.",
    )


def draw_marks(prompt: Tensor, tally: Tally) -> Picture:
    """Draw one text, word by word, coloured by how each came.

    Args:
        prompt: (P,) int64, whose last words stand in front.
        tally: of a draft, with the marks and the tokens of the text that continues this prompt.
    """
    words = [(WORDS[token], None) for token in prompt[-6:].tolist()]
    words += [(WORDS[token], mark) for token, mark in zip(tally.text, tally.marks, strict=True)]
    width, x, line, placed = 92, 0, 0, []
    for word, mark in words:
        if x + len(word) > width:
            x, line = 0, line + 1
        placed.append((x, line, word, mark))
        x += len(word) + 1.6
    with course_style():
        figure, axis = plt.subplots(figsize=(9.2, 0.3 * line + 0.9))
        for x, line_, word, mark in placed:
            box = {"boxstyle": "square,pad=0.18", "linewidth": 0}
            box["facecolor"] = _COLOURS.get(mark, "none")
            axis.text(x, line_, word, family="monospace", fontsize=8.5, bbox=box, va="center")
        axis.set(xlim=(-1, width + 2), ylim=(line + 0.8, -0.8))
        axis.axis("off")
    counts = {mark: tally.marks.count(mark) for mark in _COLOURS}
    in_words = (
        f"{counts['drafted']} guessed and kept (blue), {counts['corrected']} corrected (orange), "
        f"{counts['bonus']} bonus or without a guess (green)"
    )
    return Picture(
        figure,
        f"A text of {len(tally.marks)} new words after six of the prompt, each on a coloured ground: "
        f"{in_words}.",
        f"The last of these texts, table + own text: {in_words}. Every word is the model's own choice.",
    )


def draw_rejection() -> Picture:
    """Draw odds of a draft and of a model, what is kept of the one and what is missing to the other."""
    q, p = (np.array(_ODDS[name]) for name in ("q", "p"))
    kept, places = np.minimum(p, q), np.arange(len(p))
    with course_style():
        figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), sharey=True)
        axes[0].bar(places, kept, color=SKY, label="kept: min(p, q)")
        axes[0].bar(places, q - kept, bottom=kept, color=VERMILION, hatch="//", edgecolor="w",
                    label="rejected")  # fmt: skip
        axes[0].set(title="what the draft proposes, q", ylabel="probability")
        axes[1].bar(places, kept, color=SKY, label="kept: min(p, q)")
        axes[1].bar(places, p - kept, bottom=kept, color=ORANGE, label="missing: (p − q)⁺")
        axes[1].set(title="what the model wants, p")
        for axis in axes:
            axis.set(xticks=places, xticklabels=[f"token {i}" for i in places], ylim=(0, 0.5))
            axis.legend(loc="upper right")
            axis.grid(visible=False)
    return Picture(
        figure,
        f"Two groups of five bars. Left, q: of tokens 0, 1 and 4 a part is rejected, "
        f"{(q - kept).sum():.2f} in all. Right, p: of tokens 2 and 3 a part is missing, also "
        f"{(p - kept).sum():.2f} in all. The kept parts are the same on both sides.",
        f"What is rejected on the left, {(q - kept).sum():.2f} in all, is just what is missing on the "
        f"right: each rejection gives a token that was proposed too rarely.",
    )


def draw_pairs(counts: Mapping[str, Counter[tuple[int, ...]]]) -> Picture:
    """Draw how often the same two tokens were drawn by several ways.

    Args:
        counts: by way, pairs of tokens with their numbers; the first way is what the others should equal.
    """
    (right, of_right), *others = counts.items()
    pairs = [pair for pair, _ in of_right.most_common(6)]
    names = [" ".join(WORDS[token] for token in pair) for pair in pairs]
    with course_style():
        figure, axis = plt.subplots(figsize=(7.0, 3.2))
        for place, (way, colour) in enumerate(zip(counts, (BLUE, SKY, VERMILION), strict=False)):
            at = np.arange(len(pairs)) + 0.27 * (place - 1)
            axis.bar(at, [counts[way][pair] for pair in pairs], 0.25, color=colour, label=way)
        axis.set_xticks(range(len(pairs)), names)
        axis.set_ylabel(f"of {of_right.total():,} texts")
        axis.legend()
    gaps = []
    for way, found in others:
        pair = max(pairs, key=lambda pair, found=found: abs(found[pair] - of_right[pair]))
        word = names[pairs.index(pair)]
        gaps.append(f"{way}, \u201c{word}\u201d {found[pair]} times instead of {of_right[pair]}")
    in_words = "; ".join(
        f"{name}: " + ", ".join(f"{way} {found[pair]}" for way, found in counts.items())
        for name, pair in zip(names, pairs, strict=True)
    )
    return Picture(
        figure,
        f"Groups of bars, one for each pair of words. {in_words}.",
        f"The pairs that are drawn most often. The largest gap to {right}: {'; '.join(gaps)}.",
    )


def draw_expected(
    line: Sequence[tuple[int, float]],
    found: Mapping[str, Tally],
    n_draft: int,
    chosen: tuple[float, float, int],
) -> Picture:
    """Draw the expected speed-up over the length of drafts.

    Args:
        line: pairs (K, how many times as fast).
        found: what a race with `n_draft` measured, by the draft's name.
        chosen: acceptance and cost of the line, and the K of its dot.
    """
    a, c, K = chosen
    with course_style():
        figure, axis = plt.subplots(figsize=(7.6, 3.4))
        axis.plot(*zip(*line, strict=True), "-", color=BLUE)
        faster = dict(line)[K]
        axis.plot(K, faster, "o", color=BLUE, markersize=9)
        # Neighbours stand on different sides, for some are nearly as fast as each other.
        for place, name in enumerate(sorted(found, key=lambda name: found[name].faster)):
            side = (-1) ** place
            axis.plot(n_draft, found[name].faster, "x", color=VERMILION)
            axis.annotate(
                name,
                (n_draft, found[name].faster),
                xytext=(6 * side, -3),
                ha="left" if side > 0 else "right",
                textcoords="offset points",
                fontsize=8,
                bbox=ON_A_LINE,
            )
        axis.axhline(1, color=GREY, linestyle=":")
        axis.set(xlabel="K, tokens drafted a pass", ylabel="times as fast", ylim=(0, None))
    told = "; ".join(
        f"{name} (a {tally.acceptance:.2f}) {tally.faster:.2f}" for name, tally in found.items()
    )
    told = told or "none yet"
    return Picture(
        figure,
        f"A curve of the expected speed-up over K from 0 to {len(line) - 1}, for "
        f"acceptance {a:.2f} and cost {c:.2f}; at K = {K} it is {faster:.2f}. Crosses at K = {n_draft}: "
        f"{told}.",
        f"Acceptance {a:.2f}, cost {c:.2f}, K = {K}: {faster:.2f} times as fast by the formula. Crosses: "
        f"measured here, in the race above, with K = {n_draft}: {told}.",
    )
