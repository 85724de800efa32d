"""The pictures of lesson 07: numbers and their codes, the half step, bytes, recall, times of reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from course.fast.quantized import CacheBytes, Quantized
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
from course.plots.units import with_prefix

Quantize = Callable[[torch.Tensor, int, int], Quantized]
Dequantize = Callable[[Quantized], torch.Tensor]

# Worked out by hand: four rows of six numbers, 2 bits, one step a row.
EXAMPLE = np.array(
    [
        [0.10, 0.60, 1.30, 0.70, -0.20, 0.95],
        [-0.60, 0.25, 0.90, -0.15, 0.60, -0.40],
        [2.00, 2.80, 5.00, 3.80, 2.30, 4.40],
        [-1.10, -0.30, -0.80, 0.40, 0.05, -0.55],
    ]
)
_CODES = np.array([[1, 2, 3, 2, 0, 2], [0, 2, 3, 1, 2, 0], [0, 1, 3, 2, 0, 2], [0, 2, 1, 3, 2, 1]])
_STEPS, _ZEROS = np.array([0.5, 0.5, 1.0, 0.5]), np.array([-0.2, -0.6, 2.0, -1.1])


def draw_example() -> Picture:
    """Draw a few numbers, their 2-bit codes, and what comes back, beside each other."""
    return draw_there_and_back(EXAMPLE, _CODES, _ZEROS[:, None] + _STEPS[:, None] * _CODES)


def draw_there_and_back(x: np.ndarray, codes: np.ndarray, back: np.ndarray) -> Picture:
    """Draw heat maps of numbers (rows, columns), their codes, their reconstruction, and the error."""
    error = (back - x).round(9) + 0.0  # no "-0.00"
    low, high = min(x.min(), back.min()), max(x.max(), back.max())
    panels = (
        (x, "original", "viridis", low, high, "{:.2f}"),
        (codes, "codes", "cividis", 0, max(1, codes.max()), "{:.0f}"),
        (back, "reconstruction", "viridis", low, high, "{:.2f}"),
        (error, "error", "PuOr", -np.abs(error).max(), np.abs(error).max(), "{:+.2f}"),
    )
    rows, columns = x.shape
    with course_style():
        figure, axes = plt.subplots(
            2, 2, figsize=(1.1 * columns + 1, 0.62 * rows + 1.4), sharex=True, sharey=True
        )
        for axis, (numbers, title, colours, least, most, form) in zip(
            axes.flat, panels, strict=True
        ):
            axis.imshow(numbers, cmap=colours, vmin=least, vmax=most, aspect="auto")
            axis.set_title(title)
            axis.set(xticks=range(columns), yticks=range(rows))
            axis.tick_params(length=0)
            dark = np.abs(numbers) > 0.6 * most if title == "error" else 2 * numbers < least + most
            _write_numbers(axis, numbers, dark, form)
    return Picture(
        figure,
        f"Four heat maps of {rows} by {columns} numbers: the originals, whole numbers from 0 to "
        f"{codes.max():.0f} as their codes, the reconstruction, which looks nearly alike, and the error, "
        f"at most {np.abs(error).max():.2f}.",
        "Each row has its own step and its own zero. What is stored is the codes, and two numbers a "
        f"row. Largest error here: {np.abs(error).max():.2f}.",
    )


def _write_numbers(axis: Axes, numbers: np.ndarray, dark: np.ndarray, form: str) -> None:
    """Write each number into its place of a heat map, in white where the map is dark."""
    for (row, column), number in np.ndenumerate(numbers):
        colour = "white" if dark[row, column] else "black"
        place = {"ha": "center", "va": "center"}
        axis.text(column, row, form.format(number), fontsize=8, color=colour, **place)


def draw_half_step(quantize: Quantize, dequantize: Dequantize, bits: int = 2) -> Picture:
    """Draw what comes back, and how far off it is, for evenly spaced numbers from -1 to 1."""
    x = torch.linspace(-1, 1, 601)
    q = quantize(x, bits, 0)
    back, step = dequantize(q).numpy(), float(q.scale)
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.1))
        left.plot(x, x, color=GREY, lw=1, label="original")
        left.plot(x, back, color=BLUE, lw=2, label="comes back")
        left.set(xlabel="number", title=f"{bits} bits: {len(np.unique(back))} levels")
        left.legend()
        right.plot(x, back - x.numpy(), color=VERMILION)
        for side in (-step / 2, step / 2):
            right.axhline(side, color=GREY, ls="--")
        right.text(1, step / 2, "half a step", ha="right", va="bottom", color=GREY)
        right.set(xlabel="number", title="error", ylim=(-step, step))
    worst = float(np.abs(back - x.numpy()).max())
    return Picture(
        figure,
        f"Left: a staircase of {len(np.unique(back))} levels along the diagonal. Right: the error, a "
        f"saw tooth, at most {worst:.3f}; dashed lines mark half a step, {step / 2:.3f}.",
        f"Your quantizer. The step is {step:.3f}; the largest error {worst:.3f}. Nearest levels keep the "
        "saw tooth between the dashed lines.",
    )


def draw_shared_steps(
    x: np.ndarray, by_channel: np.ndarray, by_token: np.ndarray, bits: int, factor: float
) -> Picture:
    """Draw keys (tokens, channels) and the errors that two ways of sharing a step make.

    Args:
        x: the keys; by_channel, by_token: what came back.
        factor: by which one channel was made larger.
    """
    errors = {"a step for each channel": by_channel - x, "a step for each token": by_token - x}
    # Errors count as a part of what a channel usually says.
    usual = np.abs(x).mean(axis=0, keepdims=True)
    parts = {name: np.abs(error) / usual for name, error in errors.items()}
    with course_style():
        figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), sharey=True)
        top = float(np.abs(x).max())
        first = axes[0].imshow(x, cmap="PuOr", vmin=-top, vmax=top, aspect="auto")
        axes[0].set(title="keys", ylabel="token", xlabel="channel")
        figure.colorbar(first, ax=axes[0], shrink=0.8)
        for axis, (name, part) in zip(axes[1:], parts.items(), strict=True):
            image = axis.imshow(part, cmap="magma_r", vmin=0, vmax=1, aspect="auto")
            axis.set(title=f"{name}: {100 * part.mean():.0f} %", xlabel="channel")
        figure.colorbar(image, ax=axes[1:], shrink=0.8, label="error / usual size")
    channel, token = (100 * part.mean() for part in parts.values())
    return Picture(
        figure,
        f"Heat maps of {x.shape[0]} tokens by {x.shape[1]} channels. Left, keys, in which two channels "
        f"may stand out. Middle and right, errors of {bits} bits as a part of the channel's usual size: "
        f"{channel:.0f} % with a step for each channel, {token:.0f} % with a step for each token.",
        f"{bits} bits, one pair of channels {factor:g} times as large. Error as a share of a "
        f"channel's usual size: {channel:.0f} % with a step for each channel, {token:.0f} % for each "
        f"token.",
    )


def draw_cache_bytes(caches: Mapping[str, CacheBytes | int]) -> Picture:
    """Draw bytes of caches by name: a plain one as a whole number, or codes, scales, window stacked."""
    colours = {"full precision": GREY, "codes": BLUE, "scales": ORANGE, "window": SKY}
    with course_style():
        figure, axis = plt.subplots(figsize=(8, 0.45 * len(caches) + 1.3))
        for place, size in enumerate(caches.values()):
            whole = isinstance(size, int)
            sizes = {"full precision": size} if whole else size._asdict()
            left = 0
            for name, part in sizes.items():
                axis.barh(place, part, left=left, color=colours[name], height=0.6)
                left += part
            axis.text(left * 1.01, place, f" {with_prefix(left, 'B')}", va="center")
        axis.set_yticks(range(len(caches)), list(caches))
        largest = max(size if isinstance(size, int) else size.total for size in caches.values())
        axis.set(xlim=(0, largest * 1.2), ylim=(len(caches) - 0.5, -0.5))
        axis.xaxis.set_major_formatter(EngFormatter("B"))
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
        axis.legend(handles, list(colours), ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    in_words = "; ".join(
        f"{name}: {with_prefix(size if isinstance(size, int) else size.total, 'B')}"
        for name, size in caches.items()
    )
    return Picture(
        figure,
        f"Stacked bars of bytes: codes, scales, window. {in_words}.",
        f"{_parts_in_words(caches)} The window has the same bytes at any length of the text.",
    )


def _parts_in_words(caches: Mapping[str, CacheBytes | int]) -> str:
    """Write "Of 2 bits, codes are 60 %, scales 20 %, the window 20 %." for each quantized cache."""
    return " ".join(
        f"Of {name}, codes are {size.codes / size.total:.0%}, scales {size.scales / size.total:.0%}, the "
        f"window {size.window / size.total:.0%}."
        for name, size in caches.items()
        if isinstance(size, CacheBytes)
    )


def draw_true_bits(found: Mapping[tuple[str, str], tuple[float, Mapping[str, float]]]) -> Picture:
    """Draw far places recalled, and perplexity, against all bits that a cache takes for a number.

    Args:
        found: by name and by the groups ("" where there are none): bits a number, codes, steps and
            window together; and what `evaluate` returned.
    """
    styles = {  # of a curve, and where the names of its points stand
        "": ("*", GREEN, 13, (7, 6)),
        "groups of 16": ("o-", BLUE, 6, (-4, -14)),
        "groups of 64": ("s--", ORANGE, 6, (-22, 7)),
    }
    kinds = (
        ("recall_place_far", 100, "Places recalled, 100 tokens or more back"),
        ("perplexity", 1, "Perplexity"),
    )
    with course_style():
        figure, panels = plt.subplots(1, 2, figsize=(9.4, 3.5))
        for axis, (key, times, title) in zip(panels, kinds, strict=True):
            for groups, (style, colour, size, beside) in styles.items():
                at = {n: (b, times * r[key]) for (n, g), (b, r) in found.items() if g == groups}
                x, y = zip(*at.values(), strict=True)
                label = groups or "no groups, a plain cast"
                axis.plot(x, y, style, color=colour, markersize=size, label=label)
                for name, place in at.items():
                    axis.annotate(
                        name, place, beside, textcoords="offset points", fontsize=8, bbox=ON_A_LINE
                    )
            axis.set(title=title, xlabel="bits a number: codes, steps and window", xlim=(17.5, 4))
            axis.margins(y=0.15)
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        panels[0].legend(loc="lower left")
    in_words = "; ".join(
        f"{name}{', ' * bool(groups)}{groups}: {bits:.3g} bits, {100 * r['recall_place_far']:.1f} % and "
        f"{r['perplexity']:.3f}"
        for (name, groups), (bits, r) in found.items()
    )
    return Picture(
        figure,
        f"Far places recalled, and perplexity, against the bits that each number takes in all. "
        f"{in_words}.",
        "Fewer bits to the right. A point stands at the bits really stored per number; its name gives "
        "the bits of a code.",
    )


def draw_quality(
    bits: Sequence[int],
    quality: Mapping[str, Sequence[Mapping[str, float]]],
    full: Mapping[str, float],
) -> Picture:
    """Draw recall and perplexity against bits.

    Args:
        bits: of the codes, in the order of the results.
        quality: for each cache by name, what `evaluate` returned for each of these bits.
        full: what it returned at full precision.
    """
    styles = zip(quality.items(), ("o-", "s--"), (BLUE, VERMILION), strict=False)
    with course_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3))
        for (name, results), style, colour in styles:
            recall = [100 * result["recall_place_far"] for result in results]
            left.plot(bits, recall, style, color=colour, label=name)
            right.plot(bits, [r["perplexity"] for r in results], style, color=colour, label=name)
        left.axhline(100 * full["recall_place_far"], color=GREEN, lw=1, label="full precision")
        right.axhline(full["perplexity"], color=GREEN, lw=1, label="full precision")
        left.set(title="Places recalled, 100 tokens or more back", ylim=(0, 104))
        left.set_xlabel("bits of a code")
        left.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        top = max(r["perplexity"] for results in quality.values() for r in results)
        _label_perplexity(right, full["perplexity"], top)
        for axis in (left, right):
            axis.set_xticks(list(bits))
            axis.invert_xaxis()
        left.legend(loc="lower left")
    in_words = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{n} bits {100 * r['recall_place_far']:.1f} % and {r['perplexity']:.3f}"
            for n, r in zip(bits, results, strict=True)
        )
        for name, results in quality.items()
    )
    far = 100 * full["recall_place_far"]
    return Picture(
        figure,
        f"Recall and perplexity against bits. Full precision {far:.1f} % and "
        f"{full['perplexity']:.3f}. {in_words}.",
        f"Full precision: {far:.1f} %, perplexity {full['perplexity']:.3f}. {in_words}.",
    )


def _label_perplexity(axis: Axes, full: float, top: float) -> None:
    """Set up an axis for perplexities from that of full precision to the largest."""
    axis.set(title="Perplexity", xlabel="bits of a code", yscale="log")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_minor_formatter(lambda value, _: "")
    axis.set_yticks([1.5, 1.6, 1.7, 1.8] if top < 2 else [1.5, 2, 4, 8, 16, 32, 64])
    axis.set_ylim(full * 0.95, max(full * 1.2, top * 1.2))
