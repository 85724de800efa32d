"""The widget of lesson 15: the size of a pool, which requests come, and who is next."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from course.minigpt.paged_cache import BlockAllocator
from course.plots.prefix_cache import draw_choice
from course.plots.style import Picture
from course.serving.request import Request
from course.widgets.playground import choice, playground
from course.world.chats import draw_chats, draw_documents, serve, spared_by_rule

TRACES = {"chats": lambda: draw_chats(30), "documents": lambda: draw_documents(8, 64)}
LIMITS = {"as they came": None, "known first": math.inf, "known first, nobody 12 behind": 12}
RULES = ("first in, first out", "at random", "knows what comes")


def choose_memory(
    make_tree: Callable[[Any, int], Any],
    admit: Callable[..., int | None],
    order_by_prefix: Callable[..., list[Request]],
) -> None:
    """Show what is spared, with controls for the pool, the trace and the order.

    Args:
        make_tree, admit, order_by_prefix: as built in the lesson.
    """
    requests_of = cache(lambda trace: tuple(TRACES[trace]()))
    others = cache(
        lambda trace, n: {rule: spared_by_rule(requests_of(trace), n, rule) for rule in RULES}
    )

    def draw(n_blocks: int, trace: str, order: str) -> Picture:
        def by_prefix(tree: Any, waiting: list[Request], now: float) -> list[Request]:
            come = [Request(r.id, r.prompt, r.n_new, float(r.id)) for r in waiting]
            known = {request.id: request for request in waiting}
            return [known[r.id] for r in order_by_prefix(tree, come, now, LIMITS[order])]

        rule = None if LIMITS[order] is None else by_prefix
        served = serve(requests_of(trace), n_blocks, make_tree, BlockAllocator, admit, rule)
        spared = {f"your tree, {order}": served.spared, **others(trace, n_blocks)}
        return draw_choice(spared, served.waits, f"{trace}, {n_blocks} blocks")

    playground(
        draw,
        n_blocks=choice([48, 70, 96, 160, 384], "blocks", 70),
        trace=choice(TRACES, "trace", "documents"),
        order=choice(LIMITS, "order"),
    )
