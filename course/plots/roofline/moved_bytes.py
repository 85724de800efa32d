"""Draw the bytes that forward passes move, by what they are."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt

from course.measure.costs import Cost
from course.plots.style import BLUE, GREY, ORANGE, VERMILION, Picture, course_style

PARTS = {
    "weight_bytes": ("weights", BLUE, None),
    "kv_read_bytes": ("cache, read", ORANGE, "//"),
    "kv_written_bytes": ("cache, written", VERMILION, None),
    "activation_bytes": ("activations", GREY, ".."),
}


def draw_bytes(bills: Mapping[str, Cost]) -> Picture:
    """Draw the bytes of several forward passes by what they are, one bar each."""
    bars = []
    with course_style():
        figure, axes = plt.subplots(figsize=(7.5, 0.9 + 0.55 * len(bills)))
        for y, (name, cost) in enumerate(bills.items()):
            start = 0
            for field, (label, color, hatch) in PARTS.items():
                size = getattr(cost, field)
                axes.barh(
                    y,
                    size / 1e9,
                    left=start / 1e9,
                    color=color,
                    hatch=hatch,
                    edgecolor="white",
                    linewidth=0.3,
                    label=None if y else label,
                )
                start += size
            words = f" {cost.bytes / 1e9:.3g} GB, {cost.intensity:.3g} FLOP/byte"
            axes.text(cost.bytes / 1e9, y, words, va="center", fontsize=9)
            shares = ", ".join(
                f"{label} {getattr(cost, field) / cost.bytes:.0%}"
                for field, (label, *_) in PARTS.items()
            )
            bars.append(f"{name}: {cost.bytes / 1e9:.3g} GB ({shares})")
        axes.set_yticks(range(len(bills)), list(bills))
        axes.invert_yaxis()
        widest = max(cost.bytes for cost in bills.values()) / 1e9
        axes.set(xlabel="GB moved in one forward pass", xlim=(0, widest * 1.45))
        axes.legend(loc="upper right", fontsize=8)
    alt = f"Horizontal bars of the bytes of forward passes, by part. {'; '.join(bars)}."
    caption = (
        "However many users and however long their texts, a model's weights are read once. What grows is "
        "the cache that is read and, in prefill, the activations."
    )
    return Picture(figure, alt, caption)
