"""Lesson 11: Serving: continuous batching.

Built from solutions/11-serving/serving.py by `make build`: change it there.
"""

import heapq
from collections.abc import Callable, Sequence

from torch import Tensor

from course.measure.latency import Latency
from course.minigpt.mini_gpt import greedy_next
from course.serving.request import (
    Piece,
    Request,
    check_lengths,
    check_new,
    check_room,
    check_seconds,
)


def static_steps(n_new: Sequence[int], batch: int) -> int:
    """Iterations until all answers are complete, batch after batch.

    Args:
        n_new: tokens of each answer, at least 1; perhaps no answers at all.
        batch: rows, at least 1.
    """
    check_lengths(n_new, batch)
    return sum(max(n_new[first : first + batch]) for first in range(0, len(n_new), batch))


def continuous_steps(n_new: Sequence[int], batch: int) -> int:
    """Iterations until all answers are complete, where a free row is taken before the next iteration.

    Args:
        n_new: tokens of each answer, at least 1, in the order in which they begin; perhaps none.
        batch: rows, at least 1.
    """
    check_lengths(n_new, batch)
    free_at = [0] * batch
    for n in n_new:
        heapq.heapreplace(free_at, free_at[0] + n)
    return max(free_at)


def plan_step(
    running: Sequence[Request], waiting: Sequence[Request], budget: int, max_running: int
) -> list[Piece]:
    """Choose whose tokens go through the next pass.

    Args:
        running: requests that were admitted, the oldest first; some decode, of others the prompt is under
            way.
        waiting: requests that are not running, in the order in which they came.
        budget: tokens of a pass, all requests together, at least 1.
        max_running: requests that may run at once, those that end in this pass included, at least 1.

    Returns:
        (request, n) for each request that takes part, n from 1 to `request.left`, each request once.
        Those of `waiting` that stand there are admitted by it. Lists and requests stay as they are.
    """
    check_room(budget, max_running)
    decoding = [request for request in running if request.decodes]
    under_way = [request for request in running if not request.decodes]
    admitted = waiting[: max(0, max_running - len(running))]
    pieces = []
    for request in (*decoding, *under_way, *admitted):
        n = min(request.left, budget)
        if n > 0:
            pieces.append((request, n))
            budget -= n
    return pieces


class Scheduler:
    """Serve requests with one forward pass a step.

    Args:
        budget: tokens of a pass, at least 1.
        max_running: requests that run at once, at least 1.
    """

    def __init__(self, budget: int, max_running: int) -> None:
        check_room(budget, max_running)
        self.budget, self.max_running = budget, max_running
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    def add(self, request: Request) -> None:
        """Let a request wait for its turn, behind those that came before.

        Raises:
            ValueError: it has begun already, or one with its id is here.
        """
        check_new(request, [*self.running, *self.waiting])
        self.waiting.append(request)

    def step(self, forward: Callable[[list[Piece]], Tensor]) -> list[tuple[int, int]]:
        """Plan one pass and carry it out: `fed` and `out` of its requests move on.

        Args:
            forward: takes the pieces of a plan, of requests that it leaves as they are; gives logits
                (n, V), a row for each piece. Whatever it raises reaches the caller, and nothing changed.

        Returns:
            (id, token) for each request that got a token. With nothing to do: [], and no pass.
        """
        pieces = plan_step(self.running, self.waiting, self.budget, self.max_running)
        if not pieces:
            return []
        tokens = greedy_next(forward(pieces)).tolist()
        said = []
        for (request, n), token in zip(pieces, tokens, strict=True):
            request.fed += n
            if request.left == 0:
                request.out.append(token)
                said.append((request.id, token))
        there = [*self.running, *self.waiting]
        self.running = [r for r in there if r.fed > 0 and not r.done]
        self.waiting = [r for r in there if r.fed == 0]
        return said


def goodput(latencies: Sequence[Latency], seconds: float, max_ttft: float, max_gap: float) -> float:
    """Requests a second whose TTFT was at most max_ttft, and the 99th percentile of whose gaps
    (`itl_p99`) was at most max_gap. An answer without a gap has None there, and none that is too long.

    Args:
        latencies: of all requests; perhaps none.
        seconds: in which they were served, above 0.
        max_ttft, max_gap: limits in seconds.
    """
    check_seconds(seconds)
    good = sum(
        one.ttft <= max_ttft and (one.itl_p99 is None or one.itl_p99 <= max_gap)
        for one in latencies
    )
    return good / seconds
