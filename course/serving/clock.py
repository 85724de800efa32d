"""Time a schedule: with a model and a real clock, or with a linear cost model and a virtual clock.

    trace = draw_trace(per_second=50, seconds=8)
    served = serve_virtually(Scheduler(64, 16), trace, STORY)
    served.tokens_per_second, served.longest_gap

A virtual clock has no noise: the seconds of each pass are computed from costs that were measured once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from course.measure.latency import Latency
from course.model.bounds import check_between
from course.serving.request import Piece, Request

Forward = Callable[[list[Piece]], Tensor]
Metrics = Callable[[float, Sequence[float]], Latency]


class Steps(Protocol):
    """What a clock needs of a scheduler."""

    def add(self, request: Request) -> None: ...
    def step(self, forward: Forward) -> list[tuple[int, int]]: ...


@dataclass(frozen=True)
class PassCost:
    """The seconds of a pass, as a sum of parts.

    Attributes:
        per_pass: paid once.
        per_request: for starting the attention of each request.
        per_token: for the matrix products of each token that is fed.
        per_score: for each score of attention, of a query and a key that it may see.
    """

    per_pass: float
    per_request: float
    per_token: float
    per_score: float

    def __call__(self, pieces: Sequence[Piece]) -> float:
        """Compute the seconds of one pass over these pieces."""
        seconds = self.per_pass + self.per_request * len(pieces)
        for request, n in pieces:
            scores = n * request.fed + n * (n + 1) / 2  # of its n queries with the keys they see
            seconds += self.per_token * n + self.per_score * scores
        return seconds


STORY = PassCost(per_pass=1.2e-3, per_request=0.11e-3, per_token=16e-6, per_score=0.098e-6)
"""Fitted to passes of the story model on one CPU core: 8 decodes beside prompts of 0, 32, 64, 128,
256 and 500 tokens took 2.5, 3.0, 3.7, 5.4, 9.8 and 23 ms."""


@dataclass(frozen=True)
class Served:
    """How a trace was served.

    Attributes:
        seconds: from the first arrival to the last token.
        stamps: when each token was written, by request.
        requests: in the order of their arrival.
    """

    seconds: float
    stamps: dict[int, list[float]]
    requests: tuple[Request, ...]

    @property
    def tokens_per_second(self) -> float:
        """Throughput: the tokens of all answers, per second."""
        return sum(map(len, self.stamps.values())) / self.seconds

    @property
    def longest_gap(self) -> float:
        """The longest time between two tokens of one answer, in seconds."""
        return max(
            (float(np.diff(s).max()) for s in self.stamps.values() if len(s) > 1), default=0.0
        )

    def latencies(self, metrics: Metrics) -> list[Latency]:
        """Each request's latency, by lesson 04's `latency_metrics`."""
        return [metrics(request.arrival, self.stamps[request.id]) for request in self.requests]


def draw_trace(
    per_second: float, seconds: float, seed: int = 0, long_every: int = 8
) -> list[Request]:
    """Draw requests that arrive at random moments, with prompts of 16 to 64 tokens, every eighth of 400
    to 500, and answers of 20 to 70 tokens.

    Raises:
        ValueError: a rate or a duration of 0 or less.
    """
    if not (per_second > 0 and seconds > 0):
        raise ValueError(f"a trace needs a rate and a duration, got {per_second} and {seconds}")
    check_between("long_every", long_every, 1, 2**31)
    rng = np.random.default_rng(seed)
    n = max(1, round(per_second * seconds))
    arrivals = np.cumsum(rng.exponential(1 / per_second, n))
    requests = []
    for number, arrival in enumerate(arrivals.tolist()):
        long = number % long_every == long_every - 1
        length = int(rng.integers(400, 501) if long else rng.integers(16, 65))
        prompt = rng.integers(2, 100, length).tolist()
        requests.append(Request(number, prompt, int(rng.integers(20, 71)), arrival))
    return requests


def serve_virtually(scheduler: Steps, trace: Sequence[Request], cost: PassCost) -> Served:
    """Serve a trace by the virtual clock; no model runs, and every token is 0."""

    def forward(pieces: list[Piece]) -> Tensor:
        clock.now += cost(pieces)
        return torch.zeros(len(pieces), 2)

    clock = _Virtual()
    return _serve(scheduler, trace, forward, clock)


def serve(scheduler: Steps, trace: Sequence[Request], forward: Forward) -> Served:
    """Serve a trace in real time: each request is added when it arrives."""
    return _serve(scheduler, trace, forward, _Real())


class _Virtual:
    now = 0.0

    def wait_until(self, moment: float) -> None:
        self.now = max(self.now, moment)


class _Real:
    def __init__(self) -> None:
        self.start = time.perf_counter()

    @property
    def now(self) -> float:
        return time.perf_counter() - self.start

    def wait_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self.now))


def _serve(
    scheduler: Steps, trace: Sequence[Request], forward: Forward, clock: _Virtual | _Real
) -> Served:
    requests = tuple(Request(r.id, r.prompt, r.n_new, r.arrival) for r in trace)  # fresh ones
    stamps: dict[int, list[float]] = {request.id: [] for request in requests}
    arriving, unserved, idle = list(requests), sum(r.n_new for r in requests), 0
    while unserved:
        while arriving and arriving[0].arrival <= clock.now:
            scheduler.add(arriving.pop(0))
        written = scheduler.step(forward)
        now = clock.now
        for number, _ in written:
            stamps[number].append(now)
        unserved -= len(written)
        if written or any(request.fed for request in requests if not request.done):
            idle = 0 if written else idle + 1
        elif arriving:
            clock.wait_until(arriving[0].arrival)
        else:
            idle += 1
        if idle > 10_000:
            raise RuntimeError(f"{unserved} tokens are missing, and nothing happens any more")
    return Served(clock.now - requests[0].arrival, stamps, requests)
