"""The pictures of lesson 17: rows beside a state that is cut, bytes over length, what is still known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.given.hybrid import HybridSizes
from course.plots.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, Picture, course_style

COLOURS = (GREY, BLUE, ORANGE)
StateBytes = Callable[..., int]
"""Lesson 17's `state_bytes`."""

# --- rows, a state, and a cut ---------------------------------------------------------------------


def draw_cut(states: Mapping[int, torch.Tensor], kept: int, held: int) -> Picture:
    """Draw the rows of a full layer and the state of a linear one, four times: after `kept` tokens, after
    `held`, after a cut of the rows alone, and with the state that was remembered.

    Args:
        states: of one head, (K, V), by number of tokens; of `kept` and `held`.
    """
    largest = max(float(state.abs().max()) for state in states.values())
    moments = (
        (f"{kept} tokens: remembered", kept, kept, BLUE),
        (f"{held} tokens", held, held, BLUE),
        (f"rows cut to {kept}", kept, held, VERMILION),
        ("the remembered state", kept, kept, GREEN),
    )
    apart = float((states[held] - states[kept]).abs().max())
    with course_style():
        figure, panels = plt.subplots(
            2, len(moments), figsize=(8.8, 3.9), gridspec_kw={"height_ratios": [1, 1.15]}
        )
        for column, (title, rows, state, colour) in enumerate(moments):
            above, below = panels[:, column]
            _draw_rows(above, rows, held)
            above.set_title(title, fontsize=10)
            below.imshow(states[state].numpy(), cmap="RdBu", vmin=-largest, vmax=largest)
            below.set(xticks=[], yticks=[])
            for spine in below.spines.values():
                spine.set(visible=True, color=colour, linewidth=2.5)
            below.set_xlabel(f"state after {state} tokens", color=colour)
        panels[0, 0].set_ylabel("rows")
        panels[1, 0].set_ylabel("one head's state")
    K, V = states[held].shape
    return Picture(
        figure,
        f"Four moments side by side. Above, rows of a full layer: {kept}, {held}, {kept} and {kept} of "
        f"them. Below, the state of a linear layer, a square of {K} by {V} numbers in colours: after "
        f"{kept} tokens, after {held}, after {held} still, framed in orange, and after {kept} again.",
        f"Rows grow, and a cut takes the last ones off. The square stays a square: after the cut it "
        f"still knows all {held} tokens (orange frame; largest difference {apart:.2g}). Only what was "
        f"remembered brings the old one back (green).",
    )


def _draw_rows(axes: Axes, n: int, places: int) -> None:
    for row in range(n):
        axes.add_patch(Rectangle((0, -row), 8, 0.8, facecolor=SKY, edgecolor="black", lw=0.5))
    axes.set(xlim=(-1, 9), ylim=(-places, 1.3), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


# --- bytes ----------------------------------------------------------------------------------------


def cache_bytes(state_bytes: StateBytes, sizes: HybridSizes, n_tokens: int) -> int:
    """Count the bytes of rows, states and tails after so many tokens, in float32."""
    row = 2 * sizes.n_kv_heads * sizes.head_dim * 4
    return sizes.n_full * row * n_tokens + state_bytes(sizes, 1, 4, 4)


def with_full(sizes: HybridSizes, n_full: int) -> HybridSizes:
    """Return the sizes of as many layers, n_full of which keep rows."""
    return replace(sizes, n_full=n_full, n_linear=sizes.n_full + sizes.n_linear - n_full)


def draw_bytes(
    state_bytes: StateBytes, break_even: Callable[..., int], sizes: HybridSizes, longest: int
) -> Picture:
    """Draw what a text takes over its length: with 4 full layers of 4, with 1, and with none."""
    names = {4: "4 full (story)", 1: "3 linear, 1 full", 0: "4 linear"}
    even = break_even(sizes, 4, 4)
    with course_style():
        figure, axes = plt.subplots(figsize=(7.6, 3.3))
        _draw_lines(axes, state_bytes, sizes, longest, names)
        axes.axvline(even, color=GREEN, ls=":", label=f"break-even, {even} tokens")
        axes.legend(fontsize=9)
    at = {
        name: f"{cache_bytes(state_bytes, with_full(sizes, n), longest):,}"
        for n, name in names.items()
    }
    words = "; ".join(f"{name}: {number}" for name, number in at.items())
    return Picture(
        figure,
        f"Bytes over tokens, three lines: steep, flat, and level. After {longest:,} tokens: {words}.",
        f"One text in float32, bytes after {longest:,} tokens: {words}. Below {even} tokens a linear "
        f"layer keeps more than a full one.",
    )


def _draw_lines(
    axes: Axes,
    state_bytes: StateBytes,
    sizes: HybridSizes,
    longest: int,
    names: Mapping[int, str],
) -> None:
    lengths = np.linspace(0, longest, 60, dtype=int).tolist()
    for (n_full, name), colour in zip(names.items(), COLOURS, strict=False):
        chosen = with_full(sizes, n_full)
        numbers = [cache_bytes(state_bytes, chosen, n) / 1e6 for n in lengths]
        axes.plot(lengths, numbers, color=colour, label=name, lw=2)
    axes.set(xlabel="tokens", ylabel="MB", xlim=(0, longest), ylim=(0, None))


# --- what is still known --------------------------------------------------------------------------


def draw_known(known: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw which part of the surnames is still known, groups of bars by what came between.

    Args:
        known: by what came between, and then by model, 0 … 1.
    """
    models = list(next(iter(known.values())))
    with course_style():
        figure, axes = plt.subplots(figsize=(8.8, 3.4))
        for number, (model, colour) in enumerate(zip(models, COLOURS, strict=False)):
            places = np.arange(len(known)) + 0.27 * (number - 1)
            shares = [100 * shares[model] for shares in known.values()]
            axes.bar(places, shares, width=0.25, color=colour, label=model)
            for place, share in zip(places, shares, strict=True):
                axes.text(place, share + 1.5, f"{share:.0f}", ha="center", fontsize=8)
        axes.set_xticks(range(len(known)), list(known))
        axes.set(ylim=(0, 112), ylabel="surnames known, %")
        axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    words = "; ".join(
        f"{between}: ".replace("\n", " ")
        + ", ".join(f"{model} {share:.0%}" for model, share in shares.items())
        for between, shares in known.items()
    )
    return Picture(
        figure,
        f"Groups of bars: surnames still known, by what came between, for three models. {words}.",
        f"Measured here, one seed each. {words}.",
    )


# --- the widget -----------------------------------------------------------------------------------


def draw_choice(
    state_bytes: StateBytes,
    break_even: Callable[..., int],
    resume_point: Callable[..., int],
    sizes: HybridSizes,
    n_full: int,
    every: int | None,
    n_tokens: int,
    taken_back: int,
) -> Picture:
    """Draw bytes over length, and what a cut costs.

    Args:
        sizes: of a model whose layers may be of either kind.
        n_full: layers that keep rows.
        every: tokens from one checkpoint to the next; None: there are none.
        n_tokens: held.
        taken_back: how many of them are cut off.
    """
    chosen = with_full(sizes, n_full)
    marks = list(range(every, n_tokens + 1, every)) if every and chosen.n_linear else []
    text = list(range(n_tokens))
    prompt = [*text[: n_tokens - taken_back], -1]
    lengths = list(range(1, n_tokens + 1)) if not chosen.n_linear else marks
    again = n_tokens - taken_back - resume_point(text, prompt, lengths)
    held = cache_bytes(state_bytes, chosen, n_tokens)
    extra = len(marks) * state_bytes(chosen, 1, 4, 4) if chosen.n_linear else 0
    rows_only = cache_bytes(state_bytes, with_full(sizes, 4), n_tokens)
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1, 0.7))
        _draw_lines(left, state_bytes, sizes, 1000, {4: "4 full", n_full: f"{n_full} full"})
        left.plot([n_tokens], [(held + extra) / 1e6], "o", color=VERMILION)
        left.plot([n_tokens] * 2, [held / 1e6, (held + extra) / 1e6], color=VERMILION, lw=1)
        left.axvline(break_even(sizes, 4, 4), color=GREEN, ls=":")
        left.legend(fontsize=9)
        right.barh(["fed again", "taken back"], [again, taken_back], color=[VERMILION, GREY])
        for place, number in enumerate((again, taken_back)):
            right.text(number, place, f" {number}", va="center")
        right.xaxis.get_major_locator().set_params(integer=True)
        right.set(xlim=(0, 1.25 * max(again, taken_back, 1)), xlabel="tokens")
    return Picture(
        figure,
        f"Left, bytes over tokens; full layers: {n_full} of 4, beside 4 of 4; a point at {n_tokens} "
        f"tokens, raised by its checkpoints. Right, bars: {taken_back} tokens taken back, {again} fed "
        f"again.",
        f"{n_tokens} tokens, full layers: {n_full} of 4, checkpoints: {len(marks)}. {held + extra:,} "
        f"bytes, {extra:,} of them checkpoints; with full layers alone {rows_only:,}. To take "
        f"{taken_back} tokens back, {again} are fed again. Dotted: break-even of one layer.",
    )
