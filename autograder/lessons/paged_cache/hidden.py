"""The hidden checks of lesson 10: the visible ones, on inputs that nobody knows.

Logits are the oracle's. Which blocks a cache must own is followed here with pages that are plain objects,
by a simulation that shares no code with the course.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from autograder import oracle
from course.checks import paged_cache as visible
from course.checks.check import Challenge, by_name

NO_LIMIT = 64
"""Tokens of a cache whose max_len is left out: the model's max_seq_len."""


def logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the oracle's logits, (B, T, V), float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


class Text:
    """Follow one text: a page for each of its tokens.

    Attributes:
        held: the page of each token; pending: of those that are appended and not advanced.
    """

    def __init__(self, limit: int, held: Sequence[int] = ()) -> None:
        self.limit, self.held, self.pending = limit, list(held), []

    def table(self) -> list[int]:
        """List the pages in the order of the text."""
        return list(dict.fromkeys(self.held + self.pending))


def follow(
    n_blocks: int, size: int, operations: list[tuple[str, int, Any]]
) -> list[dict[str, Any]]:
    """Tell after each operation what it came to, each cache's pages, and how many are in use."""
    texts: list[Text] = []
    names, outcomes = count(), []
    for name, number, what in operations:
        outcome = "returned"
        if name == "new":
            texts.append(Text(NO_LIMIT if what is None else what))
        elif name == "fork":
            texts.append(Text(texts[what].limit, texts[what].held))
        elif name == "adopt":
            texts.append(Text(NO_LIMIT, texts[what[0]].held[: what[1] * size]))
        elif name == "truncate":
            texts[number].held, texts[number].pending = texts[number].held[:what], []
        elif name == "reset":
            texts[number].held, texts[number].pending = [], []
        else:
            outcome = _grow(texts, texts[number], len(what), n_blocks, size, names)
            if name == "feed" and outcome == "returned":
                texts[number].held += texts[number].pending
                texts[number].pending = []
        tables = [text.table() for text in texts]
        used = len({page for table in tables for page in table})
        outcomes.append({"outcome": outcome, "tables": tables, "used": used})
    return outcomes


def _grow(texts: list[Text], text: Text, n: int, n_blocks: int, size: int, names: Any) -> str:
    """Give n more tokens their pages, all new where the last page has other readers."""
    if len(text.held) + n > text.limit:
        return "CacheFull"
    pages = [page for other in texts for page in other.table()]
    held, last = list(text.held), len(text.held) % size
    spare = list(text.pending)
    new = 0
    if last and pages.count(held[-1]) > 1:
        copy = next(names)
        held[-last:] = [copy] * last
        new += 1
    grown: list[int] = []
    for place in range(len(held), len(held) + n):
        if place % size:
            page = (held + grown)[-1]
        elif spare and place < len(held) + len(spare):
            page = spare[place - len(held)]
        else:
            page, new = next(names), new + 1
        grown.append(page)
    if len(set(pages)) + new > n_blocks:
        return "CacheFull"
    text.held, text.pending = held, grown
    return "returned"


def blocks_that_begin(
    text: list[int], size: int, prompt: list[int], known: list[list[int]]
) -> list[int]:
    """List the numbers of the known blocks with which a prompt begins, block by block."""
    blocks, number_of = [], dict(known)
    for number, end in enumerate(range(size, len(prompt), size)):
        if prompt[:end] != text[:end] or number not in number_of:
            break
        blocks.append(number_of[number])
    return blocks


def share_saved(config: dict[str, int], prompt: int, cached: int) -> float:
    """Count the FLOPs of a prefill matrix by matrix and pair by pair, with the cache and without."""
    C, H, D = config["d_model"], config["n_heads"], config["d_model"] // config["n_heads"]
    narrow, mlp = config["n_kv_heads"] * D, config["d_ff"]

    def flops(past: int) -> int:
        total = 2 * C * config["vocab_size"]  # the logits of the last token
        for token in range(past, prompt):
            for columns in (C, narrow, narrow, C, mlp, mlp, mlp):
                total += config["n_layers"] * 2 * C * columns
            total += config["n_layers"] * H * (token + 1) * (2 * D + 2 * D)
        return total

    return 1 - flops(cached) / flops(0)


CHECKS = by_name(
    visible.blocks_are_given_once,
    visible.a_refusal_is_whole,
    visible.every_split_through_any_table.hidden(truth=logits),
    visible.blocks_follow_the_length.hidden(truth=follow),
    visible.full_changes_nothing.hidden(truth=follow),
    visible.forks_stay_apart,
    visible.one_block_is_copied.hidden(truth=follow),
    visible.keys_say_the_whole_past,
    visible.reuse_leaves_a_token.hidden(truth=blocks_that_begin),
    visible.saved_share_of_flops.hidden(truth=share_saved),
)
