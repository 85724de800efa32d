"""The pictures of lesson 15: who owns which block, what rules spare, how slow a link may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.given.prefixes import PaperPool
from course.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    YELLOW,
    Picture,
    course_style,
)

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, YELLOW)
FORGOTTEN = "#F0F0F0"
PCIE = 25e9
"""Bytes per second, about what PCIe 4 reaches with 16 lanes."""


def draw_memory(
    title: str, tree: Any, pool: PaperPool, texts: Mapping[str, Sequence[int]]
) -> Picture:
    """Draw the blocks of each text that a tree knows, with their numbers and who owns them; and how much
    of the pool is free.

    Args:
        tree: lesson 15's; only `match` is called.
        texts: words by name.
    """
    size, cells, in_words = pool.block_size, [], []
    for row, (name, words) in enumerate(texts.items()):
        known = tree.match([*words, 0])
        for column in range(len(words) // size):
            block = known[column] if column < len(known) else None
            read = block is not None and pool.allocator.owners(block) > 1
            cells.append((row, column, block, read))
        numbers = ", ".join(map(str, known)) or "nothing"
        in_words.append(f"{name}: {numbers}")
    offered = {block for _, _, block, _ in cells if block is not None}
    reading = {block for _, _, block, read in cells if read}
    free = len(pool.allocator)
    with course_style():
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(6.4, 2.9), gridspec_kw={"height_ratios": [len(texts), 0.7]}
        )
        for row, column, block, read in cells:
            _draw_cell(above, row, column, block, read)
        above.set(
            xlim=(-0.6, max(c for _, c, _, _ in cells) + 0.6),
            ylim=(len(texts) - 0.4, -0.6),
            title=title,
        )
        above.set_yticks(range(len(texts)), list(texts))
        above.set_xticks([])
        _draw_bar(
            below, free, len(offered - reading), pool.n_blocks - free - len(offered - reading)
        )
    return Picture(
        figure,
        f"A row for each text, a cell for each of its blocks, with its number in the pool. Known are "
        f"{'; '.join(in_words)}. Framed, read by somebody: {sorted(reading) or 'none'}. Below, a bar of "
        f"{pool.n_blocks} blocks, {free} of them free.",
        f"A cell is a block with its number; the same number is the same block. Framed: read by "
        f"somebody. Grey: forgotten (above), free (below). {free} of {pool.n_blocks} blocks are free, "
        f"{len(offered - reading)} only offered.",
    )


def _draw_cell(axes: Axes, row: int, column: int, block: int | None, read: bool) -> None:
    colour = FORGOTTEN if block is None else SKY
    edge = VERMILION if read else "white"
    axes.add_patch(
        Rectangle((column - 0.45, row - 0.4), 0.9, 0.8, facecolor=colour, edgecolor=edge, lw=2)
    )
    if block is not None:
        axes.text(column, row, str(block), ha="center", va="center")


def _draw_bar(axes: Axes, free: int, offered: int, read: int) -> None:
    left = 0
    for name, width, colour in (
        ("in use", read, VERMILION),
        ("offered", offered, SKY),
        ("free", free, FORGOTTEN),
    ):
        axes.barh(0, width, left=left, color=colour, edgecolor="white")
        if width:
            axes.text(left + width / 2, 0, f"{name} {width}", ha="center", va="center", fontsize=9)
        left += width
    axes.set(xlim=(0, left), yticks=[], xlabel="blocks of the pool")


def draw_rules(
    shares: Mapping[str, Sequence[float]], sizes: Sequence[int], n_requests: int
) -> Picture:
    """Draw the share of tokens that is spared, over the size of the pool, a line for each rule."""
    with course_style():
        figure, axes = plt.subplots(figsize=(8.6, 3.3))
        for (name, spared), colour in zip(shares.items(), COLOURS, strict=False):
            axes.plot(sizes, [100 * share for share in spared], "o-", color=colour, label=name)
        axes.set(ylim=(0, 100), xlabel="blocks of the pool", ylabel="tokens spared, %")
        axes.set_xticks(sizes)
        axes.legend(loc="lower right")
    lines = "; ".join(
        f"{name}: " + ", ".join(f"{s:.0%} of {n}" for s, n in zip(spared, sizes, strict=True))
        for name, spared in shares.items()
    )
    middle = sizes[len(sizes) // 2]
    at = "; ".join(f"{name} {spared[len(sizes) // 2]:.0%}" for name, spared in shares.items())
    return Picture(
        figure,
        f"Tokens spared against the blocks of the pool, a line for each rule. {lines}.",
        f"{n_requests} drawn requests. With {middle} blocks: {at}. No rule can spare more than the "
        f"highest line's end, however large the pool is.",
    )


def draw_links(links: Mapping[str, Sequence[float]], lengths: Sequence[int]) -> Picture:
    """Draw the speed at which fetching takes as long as it spares, over the tokens known."""
    with course_style():
        figure, axes = plt.subplots(figsize=(8.6, 3.5))
        for (name, speeds), colour in zip(links.items(), COLOURS, strict=False):
            axes.plot(lengths, [speed / 1e9 for speed in speeds], "o-", color=colour, label=name)
        axes.axhline(PCIE / 1e9, color=GREY, ls="--")
        axes.text(lengths[-1], PCIE / 1e9 * 1.1, "25 GB/s", ha="right", color=GREY)
        axes.set(xscale="log", yscale="log", xlabel="tokens known", ylabel="slowest link, GB/s")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    at = lengths.index(2000)
    values = ", ".join(f"{name} {speeds[at] / 1e9:.1f}" for name, speeds in links.items())
    return Picture(
        figure,
        f"The slowest link that is worth it, over the tokens known, both axes logarithmic; the lines "
        f"fall, and flatten. At 2,000 tokens, in GB/s: {values}.",
        f"Above its line, a link is worth it. At 2,000 tokens the lines are at (GB/s): {values}. Dashed: "
        f"25 GB/s, about PCIe 4.",
    )


def draw_choice(spared: Mapping[str, float], waits: Sequence[int], what: str) -> Picture:
    """Draw what one choice of pool, rule and order spares, beside the others."""
    with course_style():
        figure, axes = plt.subplots(figsize=(6.6, 0.5 * len(spared) + 0.9))
        shares = [100 * share for share in spared.values()]
        colours = [GREEN, *[GREY] * (len(spared) - 1)]
        axes.barh(list(spared), shares, color=colours, height=0.6)
        for place, share in enumerate(shares):
            axes.text(share, place, f" {share:.0f} %", va="center")
        axes.set(xlim=(0, 112), ylim=(len(spared) - 0.5, -0.5), xlabel="tokens spared, %")
    longest = max(waits, default=0)
    overtaken = (
        f"At most {longest} later requests overtook an earlier one"
        if longest
        else "Nobody was overtaken"
    )
    return Picture(
        figure,
        f"Bars of the share of tokens spared, {what}: "
        + "; ".join(f"{name} {share:.0%}" for name, share in spared.items())
        + ".",
        f"{what}: {next(iter(spared.values())):.0%} of the tokens are spared. {overtaken}.",
    )
