"""Draw the pictures of pages: the README's with lesson 03's own plot, so that both show the same, and the
syllabus's, of which lesson stands on which."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from functools import cache

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course.plots.kv_cache import draw_rows


def readme_picture() -> str:
    """Draw what three prompt tokens and four new ones cost without and with a cache, as SVG."""
    with matplotlib.rc_context({"svg.hashsalt": "second-token"}):
        return _as_svg(draw_rows(prompt_len=3, n_new=4).figure)


def needs_picture(titles: Mapping[str, str], needs: Mapping[str, list[str]]) -> str:
    """Draw the lessons as boxes, each with arrows from those on which it stands directly, as SVG.

    Args:
        titles: of the lessons, by number.
        needs: the numbers of the lessons on which each stands.
    """

    @cache
    def column(number: str) -> int:
        return max((1 + column(other) for other in needs[number]), default=0)

    direct = {
        number: [other for other in needs[number] if not is_implied(needs, number, other)]
        for number in titles
    }
    places: dict[str, tuple[int, float]] = {}
    for x in sorted({column(number) for number in titles}):
        here = [number for number in titles if column(number) == x]
        # Each near the height of those that it stands on, so that arrows keep out of the way.
        heights = {
            n: float(np.mean([places[other][1] for other in direct[n]] or [0])) for n in here
        }
        here.sort(key=heights.__getitem__, reverse=True)
        top = np.mean(list(heights.values())) + (len(here) - 1) / 2
        places |= {number: (x, top - row) for row, number in enumerate(here)}
    with matplotlib.rc_context({"svg.hashsalt": "second-token", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(11, 4.2), layout="constrained")
        for number, (x, y) in places.items():
            words = textwrap.fill(f"{number} · {titles[number].partition(':')[0]}", 14)
            box = {"boxstyle": "round,pad=0.4", "facecolor": "#e8f1f8", "edgecolor": "#0072b2"}
            axes.text(x, y, words, ha="center", va="center", fontsize=8, bbox=box)
            for other in direct[number]:
                arrow = {"arrowstyle": "->", "color": "#555555", "shrinkA": 34, "shrinkB": 34}
                axes.annotate("", (x, y), places[other], arrowprops=arrow)
        xs, ys = zip(*places.values(), strict=True)
        axes.set(xlim=(-0.5, max(xs) + 0.5), ylim=(min(ys) - 0.5, max(ys) + 0.5))
        axes.axis("off")
        return _as_svg(figure)


def is_implied(needs: Mapping[str, list[str]], number: str, needed: str) -> bool:
    """Tell whether a lesson stands on another one by way of a third."""
    return any(
        needed in needs[between] or is_implied(needs, between, needed)
        for between in needs[number]
        if between != needed
    )


def _as_svg(figure: Figure) -> str:
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)
    return "\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n"
