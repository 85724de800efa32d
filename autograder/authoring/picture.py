"""Draw the README's picture with lesson 03's own plot, so that both show the same."""

from __future__ import annotations

import io

import matplotlib
import matplotlib.pyplot as plt

from course.plots.kv_cache import draw_rows


def readme_picture() -> str:
    """Draw what three prompt tokens and four new ones cost without and with a cache, as SVG."""
    with matplotlib.rc_context({"svg.hashsalt": "second-token"}):
        figure = draw_rows(prompt_len=3, n_new=4).figure
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None}, facecolor="white")
        plt.close(figure)
    return "\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n"
