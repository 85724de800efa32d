"""Record the operations of a function in a CUDA graph, to launch them all at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def record(
    step: Callable[[], Tensor], memory: tuple[int, int] | None = None
) -> Callable[[], Tensor]:
    """Record a step, which has the same operations on the same memory at each call.

    It is run a few times first, on another stream, so that what libraries set up at their first use
    (and what is compiled) stays out of the recording.

    Args:
        step: works on the current CUDA device, and never waits for it.
        memory: a handle of `torch.cuda.graph_pool_handle`: graphs that are given the same one work in the
            same memory, so a result is to be used or copied before another graph runs.

    Returns:
        A function that replays the step; what it returns lies at the same address each time.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=memory):
        result = step()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
