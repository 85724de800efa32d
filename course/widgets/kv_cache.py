"""Show how a cache fills, step by step: the widget of lesson 03."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ipywidgets import IntSlider
from torch import Tensor

from course.model import MiniGPT
from course.model.cache import KVCacheLike
from course.plots.kv_cache import draw_cache
from course.plots.style import Picture
from course.widgets.playground import playground
from course.world.tokenizer import decode, encode


class _Recorder:
    """Wrap a cache, and record the keys that each layer gets back."""

    def __init__(self, cache: KVCacheLike) -> None:
        self._cache = cache
        self.keys: dict[int, np.ndarray] = {}

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self._cache.append(layer, k, v)
        self.keys[layer] = k[0, 0].numpy().copy()  # (S, D) of batch row 0, KV head 0
        return k, v

    def __len__(self) -> int:
        return len(self._cache)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


@dataclass(frozen=True)
class _Step:
    """Record of one decode step: words fed, held and chosen, and the keys of each layer."""

    fed: list[str]
    held: list[str]
    chosen: str
    keys: dict[int, np.ndarray]


def record_steps(
    model: MiniGPT,
    forward_cached: Callable[[MiniGPT, Tensor, KVCacheLike], Tensor],
    make_cache: Callable[..., KVCacheLike],
    prompt: str,
    n_new: int,
) -> list[_Step]:
    """Decode greedily, and record what was fed, held and chosen at each step."""
    feed = encode(prompt)
    text = feed
    cache = _Recorder(make_cache(model.config, batch=1, max_len=feed.shape[1] + n_new))
    steps = []
    for _ in range(n_new):
        last = forward_cached(model, feed, cache)[:, -1]
        chosen = last.argmax(dim=-1, keepdim=True)  # (1, 1)
        words = [decode([token]) for token in text[0].tolist()]
        steps.append(_Step(words[-feed.shape[1] :], words, decode(chosen), dict(cache.keys)))
        text, feed = torch.cat([text, chosen], dim=1), chosen
    return steps


def watch_a_cache_fill(
    model: MiniGPT,
    forward_cached: Callable[[MiniGPT, Tensor, KVCacheLike], Tensor],
    make_cache: Callable[..., KVCacheLike],
    prompt: str,
    n_new: int,
) -> None:
    """Show the keys that a cache holds, with sliders for the step and the layer.

    Args:
        forward_cached: as built in the lesson.
        make_cache: called as make_cache(config, batch=1, max_len=...), such as KVCache.
        prompt: text that is fed first, as one chunk.
        n_new: steps, one new token each.
    """
    steps = record_steps(model, forward_cached, make_cache, prompt, n_new)
    n_places = len(steps[-1].held) + 1

    def draw(step: int, layer: int) -> Picture:
        now = steps[step - 1]
        title = (
            f"Step {step}: feed “{' '.join(now.fed)}”, compute {len(now.fed)}, "
            f"read {len(now.held) - len(now.fed)} stored, choose “{now.chosen}”"
        )
        return draw_cache(now.keys[layer], now.held, n_places, len(now.fed), title)

    playground(
        draw,
        step=IntSlider(2, 1, n_new, description="step"),
        layer=IntSlider(0, 0, model.config.n_layers - 1, description="layer"),
    )
