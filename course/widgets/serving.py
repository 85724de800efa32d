"""The widget of lesson 11: a server on the virtual clock, by its budget, its rows and its load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from ipywidgets import SelectionSlider

from course.measure.latency import Latency
from course.minigpt.prefill_and_decode import latency_metrics
from course.plots.serving import draw_server
from course.plots.style import Picture
from course.serving.clock import STORY, draw_trace, serve_virtually
from course.widgets.playground import playground

BUDGETS = (16, 32, 64, 128, 256, 1024)
ROWS = (2, 4, 8, 16, 32)
LOADS = (10, 20, 30, 40, 50, 60)
LIMITS = (0.1, 0.008)
"""Of TTFT and of the p99 of gaps, in seconds."""


def tune_the_server(
    scheduler: Callable[[int, int], Any],
    goodput: Callable[[Sequence[Latency], float, float, float], float],
) -> None:
    """Show goodput and latencies of a server, with sliders for its budget, its rows and its load.

    Args:
        scheduler: the `Scheduler` built in lesson 11.
        goodput: as built there.
    """

    @cache
    def found(budget: int, rows: int, load: int) -> tuple[float, float, float]:
        served = serve_virtually(scheduler(budget, rows), draw_trace(load, seconds=3), STORY)
        latencies = served.latencies(latency_metrics)
        gaps = [one.itl_p99 for one in latencies if one.itl_p99 is not None]
        ttft = [one.ttft for one in latencies]
        good = goodput(latencies, served.seconds, *LIMITS)
        return good, float(np.percentile(ttft, 99)), float(np.percentile(gaps, 99))

    def draw(budget: int, rows: int, load: int) -> Picture:
        return draw_server(found(budget, rows, load), found(64, 16, load), LIMITS)

    playground(
        draw,
        budget=SelectionSlider(options=BUDGETS, value=256, description="budget"),
        rows=SelectionSlider(options=ROWS, value=16, description="rows"),
        load=SelectionSlider(options=LOADS, value=50, description="a second"),
    )
