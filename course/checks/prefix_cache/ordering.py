"""Check who is next: known beginnings first, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words, plain
from course.serving.request import Request


def draw_queues(seed: int) -> Challenge:
    """Draw queues without known beginnings, with some, with ties, with late requests, one that has waited
    just as long as is allowed, an empty one, and one in which two prompts stand twice."""
    rng = np.random.default_rng(seed)
    queues = []
    for late, ties in ((0, 0), (0, 0), (0, 1), (2, 0), (3, 1), (9, 1)):
        n = 9
        known = rng.integers(0, 3, n) if ties else rng.permutation(n)
        waited = rng.permutation([*range(1, n - late + 1), *range(30, 30 + late)])
        queues.append((known.tolist(), waited.tolist(), 20))
    queues.append(([0] * 5, [3, 2, 5, 1, 4], 20))
    queues.append(([0, 2, 1], [20, 20, 20], 20))  # not longer than that
    queues.append(([0, 2, 1], [21, 20, 22], 20))
    queues.append(([1, 3, 2], [50, 60, 70], float("inf")))
    queues.append(([1, 2], [0, 1], 0))
    queues.append(([], [], 5))
    longer = rng.integers(0, 6, 60).tolist()
    queues.append((longer, rng.integers(0, 40, 60).tolist(), 33))
    twice = draw_queue(rng, [1, 2, 1, 2], [3, 1, 2, 4], 20)
    twice["prompts"][2:] = twice["prompts"][:2]
    return {"queues": [*(draw_queue(rng, *queue) for queue in queues), twice]}


def draw_queue(
    rng: np.random.Generator, known: list[int], waited: list[int], max_wait: float
) -> Challenge:
    """Draw prompts of any length, the first blocks of which are known; nobody's arrival is in order."""
    now = 40.5  # below some waits, and above others: an arrival may be below 0
    prompts = [[n] * int(rng.integers(1, 9) + 2 * k) for n, k in enumerate(known)]
    return {"known": known, "waited": waited, "prompts": prompts, "max_wait": max_wait, "now": now}


class Looks:
    """A tree that only knows how many blocks each text begins with, and counts the looks."""

    block_size = 2

    def __init__(self, queue: Challenge) -> None:
        self._known = {p[0]: k for p, k in zip(queue["prompts"], queue["known"], strict=True)}
        self.looks = [0] * len(queue["known"])

    def match(self, tokens: list[int]) -> list[int]:
        """Return so many blocks.

        Raises:
            TypeError: no list.
        """
        if not isinstance(tokens, list):
            raise TypeError(f"match wants a list of tokens, got a {type(tokens).__name__}")
        self.looks[tokens[0]] += 1
        return list(range(self._known[tokens[0]]))


LAST = 1000
"""The id of the first request of a queue; those behind it have smaller ones."""


def place_of(request: Any) -> int | float | str:
    """Return the place of a request in its queue; of anything else, what it is."""
    return LAST - request.id if isinstance(request, Request) else plain(request)


def probe_queues(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Order each queue; record who comes when, how often each was looked up, and the queue after it."""
    queues = []
    for queue in challenge["queues"]:
        waiting = [
            Request(LAST - n, tuple(prompt), 1, queue["now"] - waited)
            for n, (prompt, waited) in enumerate(
                zip(queue["prompts"], queue["waited"], strict=True)
            )
        ]
        tree, before = Looks(queue), list(waiting)
        result = student.order_by_prefix(tree, waiting, queue["now"], queue["max_wait"])
        is_list = isinstance(result, list)
        order = [place_of(r) for r in result] if is_list else in_words(result)
        kept = waiting == before and result is not waiting
        queues.append({"order": order, "looks": tree.looks, "kept": kept})
    return {"queues": queues}


@check(
    "order_by_prefix",
    draw=draw_queues,
    probe=probe_queues,
    evidence=lambda challenge: {
        "queues": [
            {"order": (list, str), "looks": [int] * len(queue["known"]), "kept": bool}
            for queue in challenge["queues"]
        ]
    },
)
def known_first_late_before_all(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], list[int]]
) -> Verdict:
    """Compare orders, then how many looks they took, and what became of the queue."""
    for queue, got in zip(challenge["queues"], evidence["queues"], strict=True):
        order, expected = got["order"], truth(queue)
        case = f"known blocks {queue['known']}, waited {queue['waited']}, max_wait {queue['max_wait']:g}"
        if isinstance(order, str):
            return failed(f"{case}: order_by_prefix gave {order}; expected is a list of requests.")
        if order != expected:
            return failed(
                f"{case}: the order is {order}, and {expected} is right. {ask(queue, order)}"
            )
        if not got["kept"]:
            return failed(f"{case}: the queue itself was changed, or returned. Whose list is it?")
        prompts, looks = queue["prompts"], got["looks"]
        if any(looks[n] > prompts.count(prompt) for n, prompt in enumerate(prompts)):
            return failed(
                f"{case}: the order is right, but one request was looked up {max(looks)} times. "
                f"How often is a key computed while a list is sorted?"
            )
    return passed(
        "Known beginnings first, equals in the order of the queue, and whoever is late before all."
    )


def ask(queue: Challenge, order: list[Any]) -> str:
    """Choose the question about a wrong order."""
    late = [n for n, waited in enumerate(queue["waited"]) if waited > queue["max_wait"]]
    if sorted(order) != list(range(len(queue["known"]))):
        equal = any(queue["prompts"].count(prompt) > 1 for prompt in queue["prompts"])
        return f"{'Some have the same prompt. ' * equal}Does every request come once?"
    if order[: len(late)] != late:
        return "Who has waited longer than max_wait, and in which order do these go?"
    if not late and order == sorted(order):
        return "Nobody has waited longer than max_wait. Who counts as late, and how is the rest sorted?"
    on_time = [n for n in order if n not in late]
    if len(set(queue["known"])) < len(queue["known"]) and on_time == sorted(
        on_time, key=lambda n: -queue["known"][n]
    ):
        return "Equally many are known of some. In which order do equals go?"
    return "What are the others sorted by, and which end is first?"
