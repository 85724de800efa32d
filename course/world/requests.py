"""Many users' requests, and which part of a memory holds their tokens: a simulation without a model.

    requests = draw_requests(400)
    trace = simulate(requests, 8192, Blocks(16))
    trace.used          # share of the memory that holds tokens while others wait

Every step gives each running request one token. Requests start in the order in which they came, as
soon as there is room. Where blocks run out, the request that started last is put back to the front of
the queue and computes its tokens again later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

MEMORY, LIMIT = 8192, 1024
"""Tokens that the memory holds; tokens of the longest text."""


class Request(NamedTuple):
    """Tokens of a prompt, and of the answer that nobody knows in advance."""

    prompt: int
    answer: int

    @property
    def total(self) -> int:
        """Tokens of prompt and answer."""
        return self.prompt + self.answer


def draw_requests(n: int, seed: int = 5, typical: int = 60) -> list[Request]:
    """Draw requests: prompts and answers lognormal around `typical` tokens, together at most LIMIT."""
    lengths = np.random.default_rng(seed).lognormal(math.log(typical), 0.8, (n, 2)).round()
    pairs = ((int(p), int(a)) for p, a in lengths.clip(1, LIMIT - 1))
    return [Request(prompt, min(answer, LIMIT - prompt)) for prompt, answer in pairs]


@dataclass(frozen=True)
class Whole:
    """One contiguous piece of memory a request, reserved before it starts.

    Attributes:
        rule: "max_len", room for the longest text; "power of two", the next one above its length; or
            "known", its very length. The last two know in advance how long the answer will be.
    """

    rule: str

    def reserve(self, request: Request) -> int:
        """Count the tokens that are reserved for a request."""
        if self.rule == "max_len":
            return LIMIT
        return request.total if self.rule == "known" else 1 << (request.total - 1).bit_length()


@dataclass(frozen=True)
class Blocks:
    """Blocks of `size` tokens, taken when they are needed."""

    size: int


@dataclass
class Running:
    """A request that has started.

    Attributes:
        request: what was asked for.
        left: tokens of the answer that are still to come.
        held: tokens in memory.
        cells: numbers of its places: all of a reserved piece, or those of its blocks.
    """

    request: Request
    left: int
    held: int
    cells: list[int]


@dataclass
class Trace:
    """What a simulation found.

    Attributes:
        steps: until all requests were answered.
        put_back: how often a request was put back, to compute its tokens again.
        running: requests at once, on average over the steps at which others waited or all users had one.
        used: share of the memory that held tokens, over the same steps.
        reserved: share that was reserved, taken by blocks, and held no token.
        free: share that was free: too little to admit the next request, unless there were users at once
            enough.
        pictures: for some steps, which request each place belongs to (-1: none), and whether it holds a
            token.
    """

    steps: int = 0
    put_back: int = 0
    running: float = 0.0
    used: float = 0.0
    reserved: float = 0.0
    free: float = 0.0
    pictures: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def simulate(
    requests: Sequence[Request],
    memory: int,
    policy: Whole | Blocks,
    pictures: Sequence[int] = (),
    at_once: int | None = None,
) -> Trace:
    """Answer all requests from one memory.

    Args:
        memory: tokens that it holds.
        policy: how it is given out.
        pictures: steps at which the places are written down.
        at_once: users, each with one request at a time; None: all requests wait from the beginning.
    """
    at_once = len(requests) if at_once is None else at_once
    queue = deque((number, request, 0) for number, request in enumerate(requests))
    room = _Room(memory, policy)
    running: dict[int, Running] = {}
    trace, seen = Trace(), []
    while queue or running:
        while queue and len(running) < at_once and (started := room.start(*queue[0][1:])):
            running[queue.popleft()[0]] = started
        if trace.steps in pictures:
            trace.pictures.append(_picture(memory, running))
        if queue or len(running) == at_once:
            held, taken = (
                sum(one.held for one in running.values()),
                sum(len(one.cells) for one in running.values()),
            )
            seen.append((len(running), held, taken - held, memory - taken))
        for number in list(running):
            one = running.get(number)
            if one is None:  # put back while another one took its step
                continue
            one.left -= 1
            if one.left == 0:
                room.give_back(running.pop(number).cells)
                continue
            while number in running and not room.grow(one):
                last = list(running)[-1]
                put_back = running.pop(last)
                room.give_back(put_back.cells)
                trace.put_back += 1
                queue.appendleft((last, put_back.request, put_back.request.answer - put_back.left))
        trace.steps += 1
    n, *shares = np.mean(seen, axis=0).tolist() if seen else (0.0, 0.0, 0.0, 0.0)
    trace.running = n
    trace.used, trace.reserved, trace.free = (share / memory for share in shares)
    return trace


class _Room:
    """The places of a memory, given out by a policy."""

    def __init__(self, memory: int, policy: Whole | Blocks) -> None:
        self.policy = policy
        self.taken = np.zeros(memory, dtype=bool)
        if isinstance(policy, Blocks):
            size = policy.size
            order = np.random.default_rng(0).permutation(memory // size)
            self.blocks = [list(range(int(b) * size, int(b) * size + size)) for b in order]

    def start(self, request: Request, done: int) -> Running | None:
        """Give a request its first places, for the prompt and the tokens written before; or None."""
        held = request.prompt + done
        if isinstance(self.policy, Blocks):
            n = -(-(held + 1) // self.policy.size)
            if n > len(self.blocks):
                return None
            cells = [cell for _ in range(n) for cell in self.blocks.pop()]
            return Running(request, request.answer - done, held, cells)
        n = self.policy.reserve(request)
        first = self._first_gap(n)
        if first is None:
            return None
        self.taken[first : first + n] = True
        return Running(request, request.answer - done, held, list(range(first, first + n)))

    def grow(self, one: Running) -> bool:
        """Find a place for one more token; False where there is none."""
        if one.held == len(one.cells):
            if not self.blocks:
                return False
            one.cells += self.blocks.pop()
        one.held += 1
        return True

    def give_back(self, cells: list[int]) -> None:
        """Take places back."""
        if isinstance(self.policy, Blocks):
            size = self.policy.size
            self.blocks += [cells[at : at + size] for at in range(0, len(cells), size)]
        else:
            self.taken[cells] = False

    def _first_gap(self, n: int) -> int | None:
        """Find the first n free places in a row."""
        edges = np.diff(np.concatenate([[1], self.taken, [1]]).astype(int))
        starts, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
        fits = np.flatnonzero(ends - starts >= n)
        return int(starts[fits[0]]) if len(fits) else None


def _picture(memory: int, running: dict[int, Running]) -> tuple[np.ndarray, np.ndarray]:
    """Write down the owner of each place, and whether it holds a token."""
    owner, filled = np.full(memory, -1), np.zeros(memory, dtype=bool)
    for number, one in running.items():
        owner[one.cells] = number
        filled[one.cells[: one.held]] = True
    return owner, filled
