"""The widget of lesson 10: how the size of a block, the length of texts and the load split the memory."""

from __future__ import annotations

from functools import cache

from ipywidgets import SelectionSlider

from course.plots.paged_cache import draw_block_sizes
from course.plots.style import Picture
from course.widgets.playground import playground
from course.world.requests import MEMORY, Blocks, Trace, draw_requests, simulate

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TYPICAL = (15, 30, 60, 120, 200)
USERS = (4, 16, 64, 200)


def waste_of_blocks() -> None:
    """Show which part of the memory holds tokens, with sliders for the size of a block, for how long
    prompts and answers typically are, and for the load: users who ask at once."""

    def draw(size: int, typical: int, users: int) -> Picture:
        return draw_block_sizes(_traces(typical, users), size)

    playground(
        draw,
        size=SelectionSlider(options=SIZES, value=16, description="block"),
        typical=SelectionSlider(options=TYPICAL, value=60, description="tokens"),
        users=SelectionSlider(options=USERS, value=200, description="users"),
    )


@cache
def _traces(typical: int, users: int) -> dict[int, Trace]:
    """Simulate 200 requests for each size of a block."""
    requests = draw_requests(200, typical=typical)
    return {size: simulate(requests, MEMORY, Blocks(size), at_once=users) for size in SIZES}
