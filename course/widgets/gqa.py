"""The sliders of lesson 06: a memory, and how many sequences fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from course.minigpt.kv_cache import kv_cache_bytes
from course.model.config import GPTConfig
from course.plots.gqa import draw_memory
from course.plots.style import Picture
from course.published.models import PUBLISHED
from course.widgets.playground import choice, playground

SHARED = {"as published": None, "G = H": "all", "G = H / 2": "half", "G = 1": "one"}
MEMORIES = {"16 GB": 16, "24 GB": 24, "40 GB": 40, "80 GB": 80, "141 GB": 141, "192 GB": 192}
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)


def with_heads(config: GPTConfig, shared: str | None) -> GPTConfig:
    """Give a model all, half, one or as many KV heads as published."""
    H = config.n_heads
    heads = {None: config.n_kv_heads, "all": H, "half": H // 2 if H % 2 == 0 else H, "one": 1}
    return replace(config, n_kv_heads=heads[shared])


def play_with_memory(max_batch_that_fits: Callable[..., int]) -> None:
    """Show choices of a model, how it shares, a GPU's memory and a context; and what fits, by the
    lesson's function. (Weights stay as published: KV projections are a small part of them.)"""

    def draw(model: str, sharing: str, memory: str, context: int) -> Picture:
        size = PUBLISHED[model]
        config, room = with_heads(size.config, SHARED[sharing]), MEMORIES[memory] * 10**9
        n = max_batch_that_fits(config, room, context, size.weight_bytes)
        title = f"{model}, G = {config.n_kv_heads} of H = {config.n_heads}, {context:,} tokens each"
        return draw_memory(room, size.weight_bytes, kv_cache_bytes(config, context), n, title)

    playground(
        draw,
        model=choice(PUBLISHED, "model", "Llama-3-8B"),
        sharing=choice(SHARED, "KV heads", "as published"),
        memory=choice(MEMORIES, "memory", "80 GB"),
        context=choice(CONTEXTS, "context", 8192),
    )
