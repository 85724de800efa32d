"""Draw the pictures of lesson 04: shapes of two phases, a stream in time, a shared machine, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.model.config import GPTConfig
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


def draw_timeline(
    prompt_len: int, start: float, stamps: Sequence[float], uncached: Sequence[float]
) -> Picture:
    """Draw a measured stream: the prefill, then one step a token; and below it the first tokens of the
    same text without a cache.

    Args:
        prompt_len: tokens of the prompt.
        start, stamps: seconds, at least two stamps.
        uncached: seconds that each of the first tokens takes without a cache, two of them or more.
    """
    times = (np.array(stamps) - start) * 1e3
    gaps, without = np.diff(times), np.array(uncached) * 1e3
    marked = len(gaps) // 2
    with course_style():
        figure, axis = plt.subplots(figsize=(9, 3))
        axis.barh(0, times[0], height=0.8, color=BLUE, edgecolor="white")
        _write(axis, times[0] / 2, 0, f"prefill\n{prompt_len} rows")
        for number, (left, gap) in enumerate(zip(times, gaps, strict=False)):
            colour = ORANGE if number % 2 else VERMILION
            axis.barh(0, gap, left=left, height=0.8, color=colour)
        axis.plot(times, np.full(len(times), -0.6), "v", color="black", markersize=4)
        axis.text(times[-1], -0.8, f"{len(times)} tokens come out", ha="right")
        _span(axis, 0, times[0], -0.62, f"TTFT {times[0]:.1f} ms")
        _span(axis, times[marked], times[marked + 1], 0.62, f"one ITL {gaps[marked]:.1f} ms", 0.1)
        left = 0.0
        for number, width in enumerate(without):
            axis.barh(1.6, width, left=left, height=0.8, color=BLUE, edgecolor="white")
            rows = f"token {number + 1}\n{prompt_len + number} rows"
            _write(axis, left + width / 2, 1.6, rows)
            left += width
        axis.plot(np.cumsum(without), np.full(len(without), 1.0), "v", color="black", markersize=4)
        right = max(times[-1], left)
        axis.set(xlim=(-0.02 * right, right * 1.02), ylim=(2.1, -1.35))
        axis.set_xlabel("ms after the request")
        axis.set_yticks([0, 1.6], ["with a cache", "without"])
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
    per_row = times[0] / prompt_len
    return Picture(
        figure,
        f"Two bars in time. With a cache, the prefill of {prompt_len} tokens lasts {times[0]:.1f} ms "
        f"and ends with the first token; then come {len(gaps)} short steps, one token each, of "
        f"{np.median(gaps):.1f} ms in the middle. Without a cache the first token takes "
        f"{without[0]:.1f} ms, and the second {without[1]:.1f} ms.",
        f"Measured here. With a cache, the first token took {times[0] / np.median(gaps):.0f} times as "
        f"long as the next ones (and one row of the prefill {per_row:.3f} ms, a row of decode "
        f"{np.median(gaps):.2f} ms). Without a cache, the second took "
        f"{without[1] / without[0]:.1f} times as long as the first.",
    )


def _write(axis: Axes, x: float, y: float, text: str) -> None:
    axis.text(x, y, text, color="white", ha="center", va="center", fontsize=9)


def _span(
    axis: Axes, left: float, right: float, height: float, label: str, below: float = -0.3
) -> None:
    """Draw a double arrow with a label; `below` is how far down the label stands."""
    arrow = {
        "arrowstyle": "|-|,widthA=0.3,widthB=0.3",
        "color": "black",
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axis.annotate("", (left, height), (right, height), arrowprops=arrow)
    axis.text(
        (left + right) / 2, height + below, label, ha="center", va="top" if below > 0 else "center"
    )


# --- what is read for one token ------------------------------------------------------------------


def draw_reading(cases: Mapping[str, tuple[float, float]]) -> Picture:
    """Draw the bytes that are read for one token, as bars on a logarithmic scale.

    Args:
        cases: bytes of weights and bytes of cache, by name.
    """
    with course_style():
        figure, axis = plt.subplots(figsize=(8, 0.9 + 0.6 * len(cases)))
        least = min(min(pair) for pair in cases.values()) / 3
        for y, pair in enumerate(cases.values()):
            for size, shift, colour, name in zip(
                pair, (-0.2, 0.2), (BLUE, ORANGE), ("weights", "cache"), strict=True
            ):
                label = name if y == 0 else None
                axis.barh(
                    y + shift, size - least, left=least, height=0.38, color=colour, label=label
                )
                axis.text(size * 1.15, y + shift, _gigabytes(size), va="center", fontsize=9)
        axis.set_yticks(range(len(cases)), list(cases))
        axis.invert_yaxis()
        most = max(max(pair) for pair in cases.values())
        axis.set(xscale="log", xlim=(least, most * 30), xlabel="GB read for one token")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e9:g}")
        axis.minorticks_off()
        axis.legend(loc="lower right", fontsize=8)
    words = "; ".join(
        f"{name}: {_gigabytes(weights)} of weights, {_gigabytes(cache)} of cache"
        for name, (weights, cache) in cases.items()
    )
    return Picture(
        figure,
        f"Pairs of bars on a logarithmic scale, bytes read for one token. {words}.",
        "Computed, not measured. Each label is 10 times the one before. All rows of a pass share the "
        "weights; a cache serves its own text alone.",
    )


def _gigabytes(size: float) -> str:
    if size < 1e7:
        return f"{size / 1e6:.2g} MB"
    return f"{size / 1e9:.2g} GB" if size < 100e9 else f"{size / 1e9:.0f} GB"


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

    @property
    def own(self) -> float:
        """Add up the newcomer's own chunks: the rest of its TTFT are steps of the other stream."""
        return sum(end - begin for begin, end in self.chunks)

    def steps(self) -> list[tuple[float, float]]:
        """List when each step of the stream began and ended: behind a token, or behind a chunk."""
        ends = [*self.tokens, *(end for _, end in self.chunks)]
        begins = [max((end for end in ends if end < token), default=token) for token in self.tokens]
        return list(zip(begins, self.tokens, strict=True))


def draw_sharing(runs: Mapping[int, Shared], chunk_size: int) -> Picture:
    """Draw a stream and a long prompt on one machine, and gap and TTFT over all chunk sizes.

    Args:
        runs: measured, by chunk size.
        chunk_size: whose run is drawn in time.
    """
    run, sizes = runs[chunk_size], sorted(runs)
    gap, ttft, own = (1e3 * seconds for seconds in (run.longest_gap, run.ttft, run.own))
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), width_ratios=[3, 2])
        for number, (begin, end) in enumerate(run.chunks):
            colour = SKY if number % 2 else BLUE
            corner, width = (begin * 1e3, 0.1), (end - begin) * 1e3
            left.add_patch(Rectangle(corner, width, 0.5, facecolor=colour))
        for begin, end in run.steps():
            corner, width = (begin * 1e3, 0.75), (end - begin) * 1e3
            left.add_patch(Rectangle(corner, width, 0.5, facecolor=ORANGE))
        times = np.array(run.tokens) * 1e3
        left.plot(times, np.full(len(times), 1.4), "v", color=VERMILION)
        left.axvline(0, color=GREY, linestyle=":")
        left.set(ylim=(0, 1.7), xlabel="ms after the prompt arrived")
        left.set_yticks([0.35, 1.0], ["newcomer:\nchunks", "other stream:\nsteps"])
        left.set_title(f"chunks of {chunk_size}: longest gap {gap:.1f} ms, TTFT {ttft:.1f} ms")
        owns = [runs[size].own * 1e3 for size in sizes]
        ttfts = [runs[size].ttft * 1e3 for size in sizes]
        right.fill_between(sizes, owns, color=BLUE, alpha=0.25, linewidth=0, label="own chunks")
        between = {"color": ORANGE, "alpha": 0.4, "linewidth": 0}
        right.fill_between(sizes, owns, ttfts, label="other's steps between", **between)
        right.plot(sizes, ttfts, "s-", color=BLUE, label="newcomer's TTFT")
        gaps = [runs[size].longest_gap * 1e3 for size in sizes]
        right.plot(sizes, gaps, "v-", color=VERMILION, label="other's longest gap")
        right.axvline(chunk_size, color=GREY, linestyle=":")
        right.set(xscale="log", xlabel="chunk size", ylabel="ms", ylim=(0, 1.6 * max(ttfts)))
        right.set_xticks(sizes, [str(size) for size in sizes])
        right.minorticks_off()
        right.legend(fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return Picture(
        figure,
        f"Left: a prompt enters in {len(run.chunks)} chunks; the other stream's steps come between "
        f"them, with a longest gap of {gap:.1f} ms; the newcomer's prefill ends after {ttft:.1f} ms. "
        f"Right, for chunks from {sizes[0]} to {sizes[-1]}: the longest gap goes from "
        f"{gaps[0]:.1f} to {gaps[-1]:.1f} ms, the TTFT from {ttfts[0]:.1f} ms ({owns[0]:.1f} of its own "
        f"chunks) to {ttfts[-1]:.1f} ({owns[-1]:.1f}).",
        f"Measured here. With chunks of {chunk_size} the other stream stalls for {gap:.1f} ms at most, "
        f"and the newcomer waits {ttft:.1f} ms: {own:.1f} for its own chunks, {ttft - own:.1f} for the "
        f"other's steps between them.",
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


# --- who sees whom there -------------------------------------------------------------------------

MASKS = {
    "row 0: 3 pads\nprompt, T = S = 5": ("i....", ".i...", "..i..", "...x.", "...xx"),
    "row 1: no pads\nprompt, T = S = 5": ("x....", "xx...", "xxx..", "xxxx.", "xxxxx"),
    "row 0, later\na chunk, T = 2, S = 7": ("...xxx.", "...xxxx"),
}
"""Masks to be drawn, a string for each new place: x, a token that it sees; i, a pad that sees itself; a
dot, what it does not see."""


def draw_masks() -> Picture:
    """Draw what the new places of two rows see: in the prompt, and in a chunk after it."""
    widths = [len(rows[0]) for rows in MASKS.values()]
    with course_style():
        figure, axes = plt.subplots(1, len(MASKS), figsize=(9, 3), width_ratios=widths)
        for axis, (title, rows) in zip(axes, MASKS.items(), strict=True):
            T, S = len(rows), len(rows[0])
            n_pads = 3 if title.startswith("row 0") else 0
            for t, row in enumerate(rows):
                for place, cell in enumerate(row):
                    axis.add_patch(
                        Rectangle(
                            (place, t),
                            0.94,
                            0.94,
                            facecolor={"x": BLUE, "i": ORANGE, ".": _PAPER}[cell],
                            hatch="//" if place < n_pads else None,
                            edgecolor=GREY if place < n_pads else "white",
                            linewidth=0,
                        )
                    )
            axis.set(xlim=(0, S), ylim=(5, 0), xlabel="visible places")
            axis.set_xticks(np.arange(S) + 0.47, [str(place) for place in range(S)])
            axis.set_yticks(np.arange(T) + 0.47, [str(S - T + t) for t in range(T)])
            axis.tick_params(length=0)
            axis.set_title(title, fontsize=9)
            for side in axis.spines.values():
                side.set_visible(False)
        axes[0].set_ylabel("new places")
    words = "; ".join(
        f"{' '.join(title.split())}: {', '.join(rows)}" for title, rows in MASKS.items()
    )
    return Picture(
        figure,
        f"Three grids, a row for each new place and a column for each visible one. x is a token that it "
        f"sees, i a pad that sees itself, a dot what it does not see. {words}.",
        "Blue: may look. Hatched columns are pads; no token looks there. Orange: a pad looks at itself, "
        "so that its softmax has something to add up.",
    )
