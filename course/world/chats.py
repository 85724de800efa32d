"""Conversations that begin alike, and what a memory of known beginnings spares them: without a model.

    requests = draw_chats(60)
    served = serve(requests, n_blocks=256, make_tree=…, admit=…)
    served.spared       # the share of the prompts' tokens that need not be computed

Requests are served one after the other; each needs all blocks of its text while it is served, and what
others will ask for again may stay in the rest of the pool.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from course.given.prefixes import PaperCache, PaperPool
from course.serving.request import Request

BLOCK = 16
Order = Callable[[Any, list[Request], float], list[Request]]
"""order(tree, waiting, now) -> the waiting requests, the next one first."""


def draw_chats(n_users: int, seed: int = 0) -> list[Request]:
    """Draw the requests of users who come and go: one of four system prompts of 96 tokens, several turns,
    of which each repeats all before; three of ten users send one text, without a system prompt.

    Returns:
        In the order of arrival. `out` of a request is its answer, drawn in advance.
    """
    draw = random.Random(seed)
    systems = [_text(draw, 96) for _ in range(4)]
    turns: list[tuple[float, list[int], list[int]]] = []
    for user in range(n_users):
        once = draw.random() < 0.3
        words = [] if once else list(draw.choice(systems))
        moment = user + draw.random()
        for _ in range(1 if once else draw.randint(2, 7)):
            words = words + _text(draw, draw.randint(10, 60))
            answer = _text(draw, draw.randint(8, 40))
            turns.append((moment, words, answer))
            words = words + answer
            moment += draw.expovariate(1 / 6)
    turns.sort(key=lambda turn: turn[0])
    return [
        Request(number, words, len(answer), moment, out=answer)
        for number, (moment, words, answer) in enumerate(turns)
    ]


def draw_documents(n_documents: int, n_questions: int, blocks: int = 10) -> list[Request]:
    """Draw questions of 12 tokens, each behind a document of so many blocks, the documents in turn; their
    answers have 4 tokens."""
    draw = random.Random(0)
    documents = [_text(draw, blocks * BLOCK) for _ in range(n_documents)]
    return [
        Request(number, documents[number % n_documents] + _text(draw, 12), 4, out=_text(draw, 4))
        for number in range(n_questions)
    ]


def _text(draw: random.Random, n: int) -> list[int]:
    return [draw.randrange(50_000) for _ in range(n)]


class Served(NamedTuple):
    """What came of requests that were served one after the other.

    Attributes:
        spared: the share of the prompts' tokens that were not computed, 0 … 1.
        waits: for each request, how many others were served while it waited.
    """

    spared: float
    waits: list[int]


def serve(
    requests: Sequence[Request],
    n_blocks: int,
    make_tree: Callable[[Any, int], Any],
    make_allocator: Callable[[int], Any],
    admit: Callable[..., int | None],
    order: Order | None = None,
) -> Served:
    """Serve requests, all of which wait from the beginning, one after the other.

    Args:
        make_tree, make_allocator: lesson 15's PrefixTree and lesson 10's BlockAllocator.
        admit: lesson 15's.
        order: who is next; None: in the order of arrival.

    Raises:
        ValueError: a request needs more blocks than there are.
    """
    pool = PaperPool(make_allocator(n_blocks), BLOCK)
    tree, waiting, spared, waits = make_tree(pool.allocator, BLOCK), list(requests), 0, {}
    for now in range(len(requests)):
        waiting = order(tree, waiting, now) if order else waiting
        request, *waiting = waiting
        cache = PaperCache(pool)
        known = admit(tree, cache, list(request.prompt), request.n_new)
        if known is None:
            raise ValueError(f"request {request.id} does not fit into {n_blocks} blocks")
        spared, waits[request.id] = spared + known, now
        text = [*request.prompt, *request.out[:-1]]
        cache.write(text[known:])
        tree.insert(text, cache)
        cache.reset()
    share = spared / sum(len(request.prompt) for request in requests)
    return Served(share, [waits[r.id] - n for n, r in enumerate(requests)])


# --- other rules, as a plain simulation ----------------------------------------------------------

Rank = Callable[[Sequence[int], random.Random], float]
RULES: dict[str, Rank] = {
    "at random": lambda history, draw: draw.random(),
    "used last goes first": lambda history, draw: -history[-1],
}
"""Which leaf goes first, the one with the lowest rank: by the moments at which it was used."""


def spared_by_rule(requests: Sequence[Request], n_blocks: int, rule: str, seed: int = 0) -> float:
    """Compute the share of tokens that is spared when blocks go by one of the `RULES`, by "first in,
    first out", where no block waits for those behind it, or by "knows what comes".

    A block is named by all words up to its end, so nothing else need be kept.
    """
    draw, known, spared = random.Random(seed), {}, 0  # beginning -> moments of use
    texts = [(*r.prompt, *r.out[:-1]) for r in requests]
    beginnings = [[text[:end] for end in range(BLOCK, len(text) + 1, BLOCK)] for text in texts]
    for now, (request, text) in enumerate(zip(requests, texts, strict=True)):
        found = 0
        while (found + 1) * BLOCK < len(request.prompt) and text[: (found + 1) * BLOCK] in known:
            found += 1
        spared += found * BLOCK
        adopted = set(beginnings[now][:found])
        missing = -(-len(text) // BLOCK) - found - (n_blocks - len(known))
        for _ in range(missing):
            gone = _next_to_go(known, adopted, beginnings[now:], rule, draw)
            del known[gone]
        for beginning in beginnings[now]:
            known.setdefault(beginning, []).append(now)
    return spared / sum(len(request.prompt) for request in requests)


def _next_to_go(
    known: dict[tuple[int, ...], list[int]],
    adopted: set[tuple[int, ...]],
    to_come: Sequence[Sequence[tuple[int, ...]]],
    rule: str,
    draw: random.Random,
) -> tuple[int, ...]:
    """Choose the beginning that is forgotten next; never one that the text being served adopted."""
    if rule == "first in, first out":
        return min(
            (b for b in known if b not in adopted), key=lambda beginning: known[beginning][0]
        )
    parents = {beginning[:-BLOCK] for beginning in known}
    leaves = [b for b in known if b not in parents and b not in adopted]
    if rule == "knows what comes":
        when = {b: n for n in range(len(to_come) - 1, -1, -1) for b in to_come[n]}
        return max(leaves, key=lambda leaf: when.get(leaf, len(to_come)))
    return min(leaves, key=lambda leaf: RULES[rule](known[leaf], draw))
