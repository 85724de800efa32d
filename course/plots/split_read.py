"""The pictures of lesson 09: parts and what is left of them, cuts of real scores."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from course.plots.style import BLUE, GREEN, GREY, ORANGE, VERMILION, Picture, course_style

COLOURS = (BLUE, ORANGE, GREEN, VERMILION)
# Worked out by hand: one query, seven keys in three parts; a value is one number.
SCORES = ((1.0, 2.0), (4.0, 3.0, 3.5), (0.5, 2.5))
VALUES = ((2.0, 6.0), (3.0, 1.0, 4.0), (5.0, 2.0))
TOPS, TOTALS, OUTS = (2.0, 4.0, 2.5), (1.37, 1.97, 1.14), (6.74, 5.79, 2.68)
FADES = (0.14, 1.0, 0.22)
WHOLE = (4.0, 2.41, 7.30)  # top, total, out
FINISHED = 3.03


def draw_three_parts() -> Picture:
    """Draw the scores of seven keys in three parts, the three numbers of each, and their merging."""
    with course_style():
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(8.4, 5.2), gridspec_kw={"height_ratios": [1.15, 1]}
        )
        _draw_bars(above)
        _draw_numbers(below)
    in_words = "; ".join(
        f"part {name}: top {top}, total {total}, out {out}, times {fade}"
        for name, top, total, out, fade in zip("ABC", TOPS, TOTALS, OUTS, FADES, strict=True)
    )
    return Picture(
        figure,
        f"Bars of seven scores in three parts, with a dashed line at the top of each. Below, the numbers "
        f"of each: {in_words}. The whole: top {WHOLE[0]}, total {WHOLE[1]}, out {WHOLE[2]:.2f}; finished "
        f"{FINISHED}.",
        f"A part keeps top, total and out, here one number (D = 1), counted from its own top. To add "
        f"parts up, each is faded to the highest top. At the end out / total = {WHOLE[2]:.2f} / "
        f"{WHOLE[1]} = {FINISHED}.",
    )


def _draw_bars(axis: Axes) -> None:
    """Draw each score as a bar with its value, and each part's top as a dashed line."""
    place = 0.0
    for name, scores, values, colour in zip("ABC", SCORES, VALUES, COLOURS, strict=False):
        places = place + np.arange(len(scores))
        axis.bar(places, scores, color=colour, width=0.8)
        for at, score, value in zip(places, scores, values, strict=True):
            axis.text(at, score + 0.08, f"value {value:g}", ha="center", va="bottom", fontsize=9)
        axis.plot([places[0] - 0.5, places[-1] + 0.5], [max(scores)] * 2, "--", color=colour, lw=1)
        axis.text(places.mean(), -0.22, f"part {name}", ha="center", va="top", color=colour)
        place = places[-1] + 1.6
    axis.set(
        title="One query: its scores, cut into parts", ylabel="score", xticks=[], ylim=(0, 4.8)
    )


def _draw_numbers(axis: Axes) -> None:
    """Write each part's three numbers, by what they fade, and the whole."""
    axis.set(xlim=(0, 6), ylim=(4.6, -0.4))
    axis.axis("off")
    heads = ("", "top", "total", "out", "fade: exp(top − 4)", "")
    for column, text in enumerate(heads):
        axis.text(column + 0.5, 0, text, ha="center", va="center", color=GREY)
    rows = zip("ABC", COLOURS, TOPS, TOTALS, OUTS, FADES, strict=False)
    for number, (name, colour, top, total, out, fade) in enumerate(rows, 1):
        texts = (f"part {name}", f"{top:g}", f"{total:.2f}", f"{out:.2f}", f"× {fade:.2f}")
        for column, text in enumerate(texts):
            colour_of_text = colour if column == 0 else "black"
            axis.text(column + 0.5, number, text, ha="center", va="center", color=colour_of_text)
        axis.barh(number, 0.8 * fade, left=5.05, height=0.45, color=colour)
    axis.axhline(3.5, color=GREY, lw=0.8)
    texts = ("the whole", f"{WHOLE[0]:g}", f"{WHOLE[1]:.2f}", f"{WHOLE[2]:.2f}")
    for column, text in enumerate(texts):
        axis.text(column + 0.5, 4.05, text, ha="center", va="center", weight="bold")
    axis.text(4.5, 4.05, f"out / total = {FINISHED}", ha="center", va="center", weight="bold")


def draw_cuts(
    scores: np.ndarray,
    cuts: Sequence[int],
    shares: Sequence[float],
    order: str,
    error: float,
    without: float | None,
) -> Picture:
    """Draw scores of one query, cut into parts, and what each part counts in the whole.

    Args:
        scores: (S,).
        cuts: where parts end, the last one at S.
        shares: of each part's total in the whole's, 0 … 1.
        order: in which they were merged, in words.
        error: largest difference from attention over all keys at once.
        without: the same of sums that are not counted from a maximum; None: not asked for.
    """
    starts = [0, *cuts[:-1]]
    with course_style():
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, 3.3), gridspec_kw={"width_ratios": [2.2, 1]}
        )
        for number, (start, stop) in enumerate(zip(starts, cuts, strict=True)):
            colour = COLOURS[number % len(COLOURS)]
            places = np.arange(start, stop)
            left.bar(places, scores[start:stop], color=colour, width=0.9)
            left.hlines(
                scores[start:stop].max(), start - 0.5, stop - 0.5, color=colour, ls="--", lw=1
            )
            right.barh(number, shares[number], color=colour, height=0.6)
            right.text(shares[number], number, f" {100 * shares[number]:.1f} %", va="center")
        left.axhline(0, color=GREY, lw=0.8)
        left.set(title="Scores of one query; dashed: tops", xlabel="key", ylabel="score")
        right.set(title="Share of the whole", xlim=(0, 1.5), ylim=(len(cuts) - 0.5, -0.5))
        right.set_yticks(range(len(cuts)), [f"part {number + 1}" for number in range(len(cuts))])
        right.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    sizes = ", ".join(str(stop - start) for start, stop in zip(starts, cuts, strict=True))
    ends = f"Merged {order}, they differ from attention over all keys by {error:.1g} at most."
    if without is not None:
        ends += f" Without the maximum, e to the power of a score is {without_text(without)}."
    return Picture(
        figure,
        f"Bars of {len(scores)} scores in {len(cuts)} parts of {sizes} keys, from {scores.min():.0f} to "
        f"{scores.max():.0f}; beside, the share of each part: "
        f"{', '.join(f'{100 * share:.1f} %' for share in shares)}. {ends}",
        f"Parts of {sizes} keys. {ends}",
    )


def without_text(error: float) -> str:
    """Write what became of sums without the maximum."""
    if np.isnan(error):
        return "infinite or 0 in float32, and the result NaN"
    return f"still a number, and the result off by {error:.1g}"
