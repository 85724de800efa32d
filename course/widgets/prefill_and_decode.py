"""Show how a stream and a long prompt share one machine: the widget of lesson 04."""

from __future__ import annotations

import time
from collections.abc import Callable

from ipywidgets import SelectionSlider
from torch import Tensor

from course.measure.machine import one_thread
from course.model import MiniGPT
from course.model.cache import KVCacheLike
from course.plots.prefill_and_decode import Shared, draw_sharing
from course.plots.style import Picture
from course.widgets.playground import playground

SIZES = (8, 16, 32, 64, 128, 256)
AROUND = 6
"""Tokens of the stream before the prompt arrives, and as many after it was fed."""

Forward = Callable[[MiniGPT, Tensor, KVCacheLike], Tensor]
MakeCache = Callable[..., KVCacheLike]


def share(
    model: MiniGPT, forward_cached: Forward, make_cache: MakeCache, prompt: Tensor, chunk_size: int
) -> Shared:
    """Measure two users in turns: a chunk of the prompt (1, P), then a token of the other stream.

    Which token the stream is fed does not matter: only the end of each step is measured.
    """
    chunks, token = prompt.split(chunk_size, dim=1), prompt[:, :1]
    places = 40 + 2 * AROUND + len(chunks)
    newcomer = make_cache(model.config, batch=1, max_len=prompt.shape[1])
    other = make_cache(model.config, batch=1, max_len=places)
    forward_cached(model, prompt[:, :40], other)
    tokens, spans = [], []
    for turn in range(2 * AROUND + len(chunks)):
        if 0 <= turn - AROUND < len(chunks):
            begin = time.perf_counter()
            forward_cached(model, chunks[turn - AROUND], newcomer)
            spans.append((begin, time.perf_counter()))
        forward_cached(model, token, other)
        tokens.append(time.perf_counter())
    arrived = spans[0][0]
    return Shared(
        [stamp - arrived for stamp in tokens],
        [(begin - arrived, end - arrived) for begin, end in spans],
    )


def share_a_machine(
    model: MiniGPT,
    forward_cached: Forward,
    make_cache: MakeCache,
    prompt: Tensor,
    rounds: int = 3,
) -> None:
    """Show what a chunk size does to a stream under way and to a newcomer, with a slider for it.

    Args:
        forward_cached, make_cache: lesson 03's, such as KVCache.
        prompt: (1, P) int64, the newcomer's.
        rounds: each chunk size is measured so often, in turns; the fastest run is shown.
    """
    sizes = [*(size for size in SIZES if size < prompt.shape[1]), prompt.shape[1]]
    runs: dict[int, list[Shared]] = {size: [] for size in sizes}
    with one_thread():
        for _ in range(rounds):
            for size in sizes:
                runs[size].append(share(model, forward_cached, make_cache, prompt, size))
    best = {size: min(seen, key=lambda run: run.tokens[-1]) for size, seen in runs.items()}

    def draw(chunk: int) -> Picture:
        return draw_sharing(best, chunk)

    first = sizes[len(sizes) // 2]
    playground(draw, chunk=SelectionSlider(options=sizes, value=first, description="chunk"))
