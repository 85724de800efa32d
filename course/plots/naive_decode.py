"""Draw lesson 02's pictures: work done again, sums that grow, and time that climbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from course.model import MiniGPT
from course.plots.style import BLUE, GREY, ORANGE, SKY, Picture, course_style
from course.world.tokenizer import WORDS


def draw_grid(
    p: int, g: int, words: Sequence[str] | None = None, n_shown: int | None = None
) -> Picture:
    """Draw which rows of keys and values naive decoding computes, for the first time and again.

    Args:
        p, g: tokens of the prompt, and new ones.
        words: the p + g tokens, to name the rows; left out, they are numbered.
        n_shown: the first steps alone, and no count, where readers count themselves; left out, all.
    """
    is_part = n_shown is not None and n_shown < g
    cells = [_column(p, step) for step in range(n_shown if is_part else g)]
    first = sum(len(compute) for compute, _ in cells)
    again = sum(len(redo) for _, redo in cells)
    with course_style():
        figure, axes = plt.subplots(figsize=(7, 1.1 + min(0.34 * (p + g), 4.2)))
        axes.set(xlim=(0, max(g, 1)), ylim=(p + g, 0))
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if p + g <= 14 and g <= 8:
            _draw_named_cells(axes, cells)
            labels = [f"{words[i]!r}" if words else f"token {i}" for i in range(p + g)]
            axes.set_yticks(np.arange(p + g) + 0.5, labels)
            axes.set_xticks(np.arange(g) + 0.5, [f"step {step + 1}" for step in range(g)])
        else:
            _draw_columns(axes, cells)
            axes.set_yticks([0.5, p - 0.5, p + g - 0.5], ["token 0", "prompt ends", "last token"])
            axes.set_xticks([0.5, g - 0.5][:g], ["step 1", f"step {g}"][:g])
        axes.axhline(p, color=GREY, linewidth=1, linestyle=":")
        counts = f"{first + again:,} rows computed = {first:,} needed + {again:,} done again"
        axes.set_title(f"the first {n_shown} of {g} steps" if is_part else counts, pad=22)
    return Picture(figure, *_words_of_grid(p, g, n_shown if is_part else None, first, again))


def _words_of_grid(p: int, g: int, n_shown: int | None, first: int, again: int) -> tuple[str, str]:
    """Write the alternative text and the caption of a grid; n_shown is None where all steps are shown."""
    if n_shown is not None:
        alt = (
            f"A grid with a column for each of {g} steps and a row for each of {p + g} tokens, in which "
            f"the first {n_shown} columns are filled. Each marks the tokens that are new to it COMPUTE, "
            f"and those of the column before it REDO."
        )
        return alt, "Each column is one forward pass. How do the others go on?"
    alt = (
        f"A grid with a column for each of {g} steps and a row for each of {p + g} tokens. In its "
        f"first column the whole prompt of {p} is marked COMPUTE; each later column marks one new "
        f"token COMPUTE and all earlier ones REDO. The row of the last token stays empty."
    )
    caption = (
        f"Each column is one forward pass. Of {first + again:,} rows, {again:,} had been computed "
        f"before."
    )
    if g:
        caption += " The last token's row is empty: it is chosen last and never fed in."
    return alt, caption


def _column(p: int, step: int) -> tuple[range, range]:
    """List the tokens whose rows a step computes for the first time, and those it computes again."""
    if step == 0:
        return range(p), range(0)
    return range(p + step - 1, p + step), range(p + step - 1)


def _draw_named_cells(axes: Axes, cells: Sequence[tuple[range, range]]) -> None:
    """Draw each cell with its word, COMPUTE or REDO."""
    for step, (compute, redo) in enumerate(cells):
        for tokens, word, color, ink in (
            (compute, "COMPUTE", BLUE, "white"),
            (redo, "REDO", ORANGE, "black"),
        ):
            for token in tokens:
                corner = (step + 0.02, token + 0.04)
                axes.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=color))
                place = (step + 0.5, token + 0.53)
                axes.text(*place, word, color=ink, ha="center", va="center", fontsize=8)


def _draw_columns(axes: Axes, cells: Sequence[tuple[range, range]]) -> None:
    """Draw each column as two blocks, for grids too large for words."""
    kinds = {"COMPUTE": (BLUE, None), "REDO": (ORANGE, "//")}
    for step, column in enumerate(cells):
        for tokens, (color, hatch) in zip(column, kinds.values(), strict=True):
            corner, size = (step, tokens.start), len(tokens)
            axes.add_patch(
                Rectangle(corner, 1, size, facecolor=color, hatch=hatch, edgecolor="white", lw=0.3)
            )
    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=word)
        for word, (color, hatch) in kinds.items()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.01), ncols=2)


def draw_same_keys(model: MiniGPT, short: Tensor, long: Tensor) -> Picture:
    """Draw the keys of the tokens that two texts share, computed in each, and their difference.

    Args:
        short, long: (1, T) and (1, T') int64; `long` begins with `short`.
    """
    T = short.shape[1]
    before, after = _last_keys(model, short), _last_keys(model, long)
    difference = np.abs(after[:T] - before)
    low, high = float(after.min()), float(after.max())
    names = [WORDS[i] for i in long[0].tolist()]
    with course_style():
        figure, axes = plt.subplots(3, 1, figsize=(7.5, 3.4), height_ratios=[T, len(names), T])
        for one, keys, words, title in [
            (axes[0], before, names[:T], f"keys after {T} tokens"),
            (axes[1], after, names, f"keys after {len(names)} tokens"),
            (axes[2], difference, names[:T], "difference, same colour scale"),
        ]:
            colors = {"vmin": low, "vmax": high, "cmap": "cividis"}
            if one is axes[2]:
                colors = {"vmin": 0, "vmax": high, "cmap": "Greys"}
            one.imshow(keys, aspect="auto", **colors)
            one.set_yticks(range(len(words)), words, fontsize=8)
            one.set(xticks=[], title=title)
            one.tick_params(length=0)
        axes[1].axhline(T - 0.5, color="white", linewidth=2)
        largest = float(difference.max())
        axes[2].set_title(f"difference: at most {largest:.0e}, keys reach {high:.1f}")
        axes[2].set_xlabel(f"the {before.shape[1]} numbers of a row of keys, last layer")
    alt = (
        f"Three heat maps. The first shows the keys of {T} tokens, the second those of "
        f"{len(names)} tokens, whose first {T} rows look the same. The third, the difference, is "
        f"blank: at most {largest:.0e}."
    )
    caption = (
        f"The first {T} rows above and in the middle are the same numbers, computed twice. What "
        f"is left of the difference is rounding."
    )
    return Picture(figure, alt, caption)


def _last_keys(model: MiniGPT, tokens: Tensor) -> np.ndarray:
    """Compute the keys of the last layer before rotation, (T, G * D)."""
    kept: list[Tensor] = []
    hook = model.blocks[-1].attn.wk.register_forward_hook(lambda *call: kept.append(call[2]))
    try:
        with torch.no_grad():
            model(tokens)
    finally:
        hook.remove()
    return kept[0][0].numpy()


def draw_staircases(requests: Sequence[tuple[int, int]]) -> Picture:
    """Draw how many positions each new token looks at, for requests (prompt_len, n_new)."""
    with course_style():
        figure, row = plt.subplots(1, len(requests), figsize=(7.8, 2.7), squeeze=False)
        told = []
        for axes, (p, g) in zip(row[0], requests, strict=True):
            steps = np.arange(1, g + 1)
            # As areas and not as bars: two hundred bars would leave white lines between them.
            axes.stackplot(
                np.repeat([*steps, g + 1], 2)[1:-1] - 0.5,
                np.full(2 * g, p),
                np.repeat(steps - 1, 2),
                colors=[SKY, ORANGE],
                labels=["prompt", "written since"],
            )
            total = int((p + steps - 1).sum())
            axes.set(
                title=f"p = {p:,}, g = {g:,}\n{total:,} visits", xlabel="step", xlim=(0.5, g + 0.5)
            )
            told.append(f"prompt {p:,} and {g:,} new tokens: {total:,} visits")
        row[0][0].set_ylabel("positions looked at")
        row[0][0].legend(loc="upper left", fontsize=8)
    alt = (
        "Staircases: each step is one position higher than the one before, on a base as high as the "
        f"prompt is long. {'; '.join(told)}."
    )
    caption = (
        "The area is the number of visits. Without a prompt to speak of it is a triangle; with a "
        "long prompt it is a high block with a thin triangle on top."
    )
    return Picture(figure, alt, caption)


def draw_step_times(
    times: Mapping[int, Sequence[float]], fit_to: int, title: str = "One step of naive decoding"
) -> Picture:
    """Plot measured seconds of a step by the tokens it reads, and the line that rows alone predict.

    Args:
        times: for each number of tokens, some measured times; their minimum is drawn.
        fit_to: the line is laid through the measured points up to so many tokens.
    """
    tokens = np.array(list(times))
    best = np.array([min(times[n]) for n in tokens]) * 1e3
    short = tokens <= fit_to
    slope, start = np.polyfit(tokens[short], best[short], 1)
    line = start + slope * tokens
    with course_style():
        figure, axes = plt.subplots(figsize=(7, 3.2))
        axes.plot(tokens, line, "--", color=GREY, label="fit: a fixed cost, and a cost per row")
        axes.plot(tokens, best, "o-", color=BLUE, label="measured")
        axes.fill_between(tokens, line, best, where=best > line, color=ORANGE, alpha=0.4)
        axes.axvspan(0, fit_to, color=GREY, alpha=0.12, linewidth=0)
        axes.text(fit_to / 2, best.max() * 0.55, "fitted\nhere", color=GREY, ha="center")
        axes.set(title=title, xlabel="tokens that the step reads", ylabel="ms")
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.legend(loc="upper left", bbox_to_anchor=(fit_to / tokens[-1], 1))
    alt = (
        f"Time of a step against the tokens it reads. A dashed straight line is fitted to the "
        f"points up to {fit_to} tokens and goes on to {line[-1]:.1f} ms at {tokens[-1]:,}. The "
        f"measured points leave it upwards and reach {best.max():.1f} ms."
    )
    caption = (
        f"At {tokens[-1]:,} tokens a step took {best[-1]:.1f} ms; the rows alone predict "
        f"{line[-1]:.1f} ms."
    )
    return Picture(figure, alt, caption)
