"""The hidden checks of lesson 11: the visible ones, on inputs that nobody knows.

Iterations are counted one by one, with rows that are plain lists; plans are judged by what they promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course.checks import serving as visible
from course.checks.check import by_name


def count_static(n_new: Sequence[int], batch: int) -> int:
    """Count iterations, each of which takes a token off every answer of the batch."""
    waiting, iterations = list(n_new), 0
    while waiting:
        rows, waiting = waiting[:batch], waiting[batch:]
        while any(left > 0 for left in rows):
            rows = [left - 1 for left in rows]
            iterations += 1
    return iterations


def count_continuous(n_new: Sequence[int], batch: int) -> int:
    """Count iterations, before each of which free rows are filled."""
    waiting, rows, iterations = list(n_new), [], 0
    while waiting or rows:
        while waiting and len(rows) < batch:
            rows.append(waiting.pop(0))
        rows = [left - 1 for left in rows if left > 1]
        iterations += 1
    return iterations


def follow_places(server: dict[str, Any]) -> list[list[int]]:
    """List who takes part in each pass, where the budget is never short: each pass gives each of them
    one token, and the pass that fails gives none."""
    coming = [(row["comes"], row["id"], row["n_new"]) for row in server["requests"]]
    queue: list[list[int]] = []
    passes: list[list[int]] = []
    now = 0
    while coming or queue:
        while coming and coming[0][0] <= now:
            _, number, n_new = coming.pop(0)
            queue.append([number, n_new])
        now += 1
        inside = queue[: server["room"]]
        if not inside:
            continue
        passes.append([number for number, _ in inside])
        if len(passes) - 1 != server["fails_at"]:
            for one in inside:
                one[1] -= 1
            queue = [one for one in queue if one[1]]
    return passes


def count_good(
    rows: Sequence[tuple[float, ...]], seconds: float, max_ttft: float, max_gap: float
) -> float:
    """Count requests that met both limits, a second."""
    late = [ttft > max_ttft for ttft, *_ in rows]
    halting = [p99 is not None and p99 > max_gap for *_, p99 in rows]
    return [*map(any, zip(late, halting, strict=True))].count(False) / seconds


CHECKS = by_name(
    visible.static_batches_wait.hidden(truth=count_static),
    visible.continuous_batches_fill_holes.hidden(truth=count_continuous),
    visible.within_budget_and_room,
    visible.decodes_come_first,
    visible.nobody_overtakes,
    visible.nothing_is_left_idle,
    visible.every_request_as_if_alone,
    visible.leaves_and_joins_at_once.hidden(truth=follow_places),
    visible.goodput_meets_both_limits.hidden(truth=count_good),
)
