"""Draw the pictures of lesson 04: shapes of two phases, a stream in time, a shared machine, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.config import GPTConfig
from course.plots.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, Picture, course_style
from course.world.tokenizer import decode, encode

_PAPER = "#F2F2F2"


def phase_shapes(
    config: GPTConfig, n_new: int, n_past: int, batch: int = 1
) -> dict[str, tuple[int, ...]]:
    """List the shapes inside one layer when n_new tokens follow n_past cached ones."""
    B, T, S = batch, n_new, n_past + n_new
    H, G, D = config.n_heads, config.n_kv_heads, config.head_dim
    return {
        "queries": (B, H, T, D),
        "keys": (B, G, S, D),
        "scores": (B, H, T, S),
        "mlp": (B, T, config.d_ff),
    }


def draw_phases(config: GPTConfig, prompt_len: int, n_past: int) -> Picture:
    """Draw queries, keys, scores of one head and rows of the MLP, in prefill and in a decode step.

    Args:
        prompt_len: tokens of the prefill, which finds an empty cache.
        n_past: tokens that the decode step finds in the cache.
    """
    cases = {"Prefill": (prompt_len, 0), "Decode": (1, n_past)}
    S = max(prompt_len, n_past + 1)
    with course_style():
        figure, axes = plt.subplots(2, 4, figsize=(9, 5), width_ratios=[6, 6, S, 12], squeeze=False)
        for row, (phase, (T, past)) in zip(axes, cases.items(), strict=True):
            shapes = {
                name: f"\n{' × '.join(letters)}\n{' × '.join(map(str, shape))}"
                for (name, shape), letters in zip(
                    phase_shapes(config, T, past).items(),
                    ("BHTD", "BGSD", "BHTS", "BTF"),
                    strict=True,
                )
            }
            seen = past + T
            _grid(row[0], (T, 6), (S, 6), BLUE, f"queries{shapes['queries']}")
            _grid(row[1], (seen, 6), (S, 6), SKY, f"keys{shapes['keys']}", n_old=past)
            _grid(row[2], (T, seen), (S, S), ORANGE, f"scores{shapes['scores']}", triangle=T > 1)
            _grid(row[3], (T, 12), (S, 12), GREEN, f"in the MLP{shapes['mlp']}")
            row[0].set_ylabel(f"{phase}\nT = {T}, S = {seen}")
    return Picture(
        figure,
        f"Two rows of four rectangles: queries, keys, scores, the inside of the MLP. In a prefill of "
        f"{prompt_len} tokens all are {prompt_len} rows high. In a decode step with {n_past} tokens "
        f"cached, queries and MLP have one row, keys {n_past + 1}, and the scores are one row of "
        f"{n_past + 1}.",
        f"One layer. A row of each rectangle is a token, heads and widths are drawn small. Decode: "
        f"one row everywhere, except for the keys, {n_past} of them from the cache (pale). F is d_ff.",
    )


def _grid(
    axis: Axes,
    size: tuple[int, int],
    room: tuple[int, int],
    colour: str,
    title: str,
    triangle: bool = False,
    n_old: int = 0,
) -> None:
    """Draw a rectangle of cells.

    Args:
        size: rows and columns.
        room: rows and columns that the axes have room for.
        triangle: leave pale what a token may not see.
        n_old: so many rows, the first ones, are pale.
    """
    for r in range(size[0]):
        for c in range(size[1]):
            face = _PAPER if triangle and c > r else colour
            alpha = 0.35 if r < n_old else 1
            axis.add_patch(Rectangle((c, r), 1, 1, facecolor=face, alpha=alpha, edgecolor="white"))
    axis.set(xlim=(0, room[1]), ylim=(room[0], 0), xticks=[], yticks=[])
    axis.set_title(title, fontsize=9)
    for side in axis.spines.values():
        side.set_visible(False)


# --- one stream in time --------------------------------------------------------------------------


def draw_timeline(prompt_len: int, start: float, stamps: Sequence[float]) -> Picture:
    """Draw a measured stream: the prefill, then one step a token, with TTFT and one ITL marked.

    Args:
        prompt_len: tokens of the prompt.
        start, stamps: seconds, at least two stamps.
    """
    times = (np.array(stamps) - start) * 1e3
    gaps = np.diff(times)
    marked = len(gaps) // 2
    with course_style():
        figure, axis = plt.subplots(figsize=(9, 2.9))
        axis.add_patch(Rectangle((0, 0), times[0], 1, facecolor=BLUE))
        axis.text(
            times[0] / 2,
            0.5,
            f"prefill\n{prompt_len} tokens",
            color="white",
            ha="center",
            va="center",
        )
        for number, (left, gap) in enumerate(zip(times, gaps, strict=False)):
            colour = ORANGE if number % 2 else VERMILION
            axis.add_patch(Rectangle((left, 0), gap, 1, facecolor=colour))
        axis.plot(times, np.full(len(times), 1.25), "v", color="black", markersize=4)
        axis.text(times[-1], 1.5, f"{len(times)} tokens come out", ha="right")
        _span(axis, 0, times[0], -0.35, f"TTFT {times[0]:.1f} ms")
        _span(axis, times[marked], times[marked + 1], -0.35, f"one ITL {gaps[marked]:.1f} ms")
        axis.set(xlim=(-0.02 * times[-1], times[-1] * 1.02), ylim=(-1.05, 1.95))
        axis.set_xlabel("ms after the request")
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
    per_row = times[0] / prompt_len
    return Picture(
        figure,
        f"A bar in time. Its first part, the prefill of {prompt_len} tokens, lasts {times[0]:.1f} ms "
        f"and ends with the first token. Then come {len(gaps)} short steps, one token each, of "
        f"{np.median(gaps):.1f} ms in the middle.",
        f"Measured here. The first token waited {times[0] / np.median(gaps):.0f} times as long as the "
        f"next ones. Yet a row of the prefill took {per_row:.3f} ms, a row of decode "
        f"{np.median(gaps):.2f} ms: {np.median(gaps) / per_row:.0f} times as much.",
    )


def _span(axis: Axes, left: float, right: float, height: float, label: str) -> None:
    """Draw a double arrow with a label below."""
    arrow = {
        "arrowstyle": "|-|,widthA=0.3,widthB=0.3",
        "color": "black",
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axis.annotate("", (left, height), (right, height), arrowprops=arrow)
    axis.text((left + right) / 2, height - 0.2, label, ha="center", va="top")


# --- two users, one machine ----------------------------------------------------------------------


class Shared(NamedTuple):
    """Times of a stream under way and of a prompt that arrives at time 0, in seconds.

    Attributes:
        tokens: when each token of the stream came out.
        chunks: when each chunk of the prompt began and ended.
    """

    tokens: list[float]
    chunks: list[tuple[float, float]]

    @property
    def longest_gap(self) -> float:
        """Find the longest gap between two tokens of the stream."""
        return float(np.diff(self.tokens).max())

    @property
    def ttft(self) -> float:
        """Find when the newcomer's prefill ends."""
        return self.chunks[-1][1]


def draw_sharing(runs: Mapping[int, Shared], chunk_size: int) -> Picture:
    """Draw a stream and a long prompt on one machine, and gap and TTFT over all chunk sizes.

    Args:
        runs: measured, by chunk size.
        chunk_size: whose run is drawn in time.
    """
    run, sizes = runs[chunk_size], sorted(runs)
    gap, ttft = run.longest_gap * 1e3, run.ttft * 1e3
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), width_ratios=[3, 2])
        for number, (begin, end) in enumerate(run.chunks):
            colour = SKY if number % 2 else BLUE
            corner, width = (begin * 1e3, 0.1), (end - begin) * 1e3
            left.add_patch(Rectangle(corner, width, 0.5, facecolor=colour))
        times = np.array(run.tokens) * 1e3
        left.plot(times, np.full(len(times), 1.2), "v", color=VERMILION)
        left.axvline(0, color=GREY, linestyle=":")
        left.set(ylim=(0, 1.7), xlabel="ms after the prompt arrived")
        left.set_yticks([0.35, 1.2], ["newcomer:\nchunks", "other stream:\ntokens"])
        left.set_title(f"chunks of {chunk_size}: longest gap {gap:.1f} ms, TTFT {ttft:.1f} ms")
        for values, colour, mark, name in (
            (
                [runs[size].longest_gap * 1e3 for size in sizes],
                VERMILION,
                "v-",
                "other's longest gap",
            ),
            ([runs[size].ttft * 1e3 for size in sizes], BLUE, "s-", "newcomer's TTFT"),
        ):
            right.plot(sizes, values, mark, color=colour, label=name)
        right.axvline(chunk_size, color=GREY, linestyle=":")
        right.set(xscale="log", xlabel="chunk size", ylabel="ms", ylim=(0, None))
        right.set_xticks(sizes, [str(size) for size in sizes])
        right.minorticks_off()
        right.legend(fontsize=8)
    return Picture(
        figure,
        f"Left: a prompt enters in {len(run.chunks)} chunks; the other stream's tokens come between "
        f"them, with a longest gap of {gap:.1f} ms; the newcomer's prefill ends after {ttft:.1f} ms. "
        f"Right, for chunks from {sizes[0]} to {sizes[-1]}: the longest gap goes from "
        f"{runs[sizes[0]].longest_gap * 1e3:.1f} to {runs[sizes[-1]].longest_gap * 1e3:.1f} ms, the "
        f"TTFT from {runs[sizes[0]].ttft * 1e3:.1f} to {runs[sizes[-1]].ttft * 1e3:.1f} ms.",
        f"Measured here. With chunks of {chunk_size} the other stream stalls for {gap:.1f} ms at most, "
        f"and the newcomer waits {ttft:.1f} ms. Small chunks: short gaps, a later first token.",
    )


# --- rows of different lengths -------------------------------------------------------------------


def draw_padding(texts: Sequence[str]) -> Picture:
    """Draw a ragged batch, padded on the left: words, their positions, and each row's next one."""
    rows = [[decode([token]) for token in encode(text)[0].tolist()] for text in texts]
    T = max(map(len, rows))
    with course_style():
        figure, axis = plt.subplots(figsize=(1.25 * (T + 1), 0.62 * len(rows) + 0.7))
        for b, words in enumerate(rows):
            for place in range(T):
                own = place - (T - len(words))
                pad = own < 0
                axis.add_patch(
                    Rectangle(
                        (place, b),
                        0.96,
                        0.9,
                        facecolor=_PAPER if pad else SKY,
                        edgecolor=GREY if pad else "white",
                        hatch="//" if pad else None,
                        linewidth=0,
                    )
                )
                label = "pad" if pad else f"{words[own]}\n{own}"
                colour = GREY if pad else "black"
                axis.text(place + 0.48, b + 0.46, label, ha="center", va="center", color=colour)
            axis.text(T + 0.48, b + 0.46, f"next: {len(words)}", ha="center", va="center")
        axis.set(xlim=(0, T + 1), ylim=(len(rows), 0), xlabel="place in the batch's row")
        axis.set_xticks(np.arange(T) + 0.48, [str(place) for place in range(T)])
        axis.set_yticks(np.arange(len(rows)) + 0.45, [f"row {b}" for b in range(len(rows))])
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    lengths = [len(words) for words in rows]
    return Picture(
        figure,
        f"A grid of {len(rows)} rows by {T} places. Prompts of {lengths} tokens all end in the last "
        f"place; the places before a short one are pads. Under each word stands its position, counted "
        f"from 0 in its own row.",
        "Below each word: its position in its own text. The place in the row is another number as "
        "soon as there are pads.",
    )
