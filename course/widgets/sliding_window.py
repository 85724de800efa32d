"""The widget of lesson 08: a window, sinks, and which layers keep everything."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from ipywidgets import Checkbox, IntSlider

from course.given.windowed import EVERYTHING, WindowMask, windowed_model
from course.model import MiniGPT
from course.plots.sliding_window import draw_choice
from course.plots.style import Picture
from course.widgets.playground import choice, playground
from course.world.evaluation import held_out, recall_by_distance

EDGES = (0, 32, 64, 128, 256)
N_TOKENS = 250


def choose_windows(
    model: MiniGPT, window_mask: WindowMask, windowed_cache_bytes: Callable[..., int]
) -> None:
    """Show sliders of window and sinks, a tick for each layer, and what mask, recall and bytes follow.

    Args:
        window_mask, windowed_cache_bytes: as built in the lesson.
    """
    stories, layers = held_out(12), range(model.config.n_layers)

    def draw(window: int, n_sinks: int, **full: bool) -> Picture:
        windows = [EVERYTHING if full[f"layer_{i}"] else window for i in layers]
        forward = windowed_model(model, window_mask, windows, n_sinks)
        recall = recall_by_distance(forward, stories, EDGES)
        own = torch.arange(100)
        mask = np.asarray(window_mask(own, own, window, n_sinks))
        config, n_full = model.config, sum(full.values())
        sizes = [
            windowed_cache_bytes(config, N_TOKENS, window, n_sinks, n)
            for n in (n_full, config.n_layers)
        ]
        return draw_choice(mask, n_sinks, recall, EDGES, (sizes[0], sizes[1]))

    ticks = {
        f"layer_{i}": Checkbox(i == 2, description=f"layer {i} keeps all", indent=False)
        for i in layers
    }
    playground(
        draw,
        window=choice([8, 16, 32, 64, 128], "window", 32),
        n_sinks=IntSlider(0, 0, 8, description="sinks", continuous_update=False),
        **ticks,
    )
