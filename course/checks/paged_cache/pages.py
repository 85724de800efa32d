"""Drive several caches on one pool by a drawn series of operations, and record what each came to.

The operations are those of `cache_operations`; max_len may be None.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.cache_operations import ALONE, FREE_BLOCK_ADOPTED, Handling, attempt
from course.checks.cache_operations import Operation as Operation
from course.checks.caches import InputChanged, copied_pair, feed_parts
from course.checks.check import Challenge, Evidence
from course.checks.comparing import outcome_in_words
from course.checks.recorder import given
from course.model.config import GPTConfig

MOVED = (
    "this check changed the signs in the pool, and what append had returned is other numbers now"
)
"""An outcome: what comes back should be in memory of its own."""
QUESTIONS = {
    MOVED: "In whose memory does a result lie?",
    FREE_BLOCK_ADOPTED: "What do you look at before anything changes?",
}
"""About outcomes that are neither a result nor an exception."""
POISON = 77.0
"""What stands in a pool before anything is written; no drawn number is as large."""
CONFIG = GPTConfig(30, 3, 24, 4, 2, 40, max_seq_len=64)
"""Three layers, G = 2, D = 6."""


def draw_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw keys and values of n tokens, (2, L, 1, G, n, D), no two numbers equal."""
    return rng.normal(size=(2, 3, 1, 2, n, 6)).astype(np.float32)


def make_pool(
    student: SimpleNamespace,
    config: GPTConfig,
    n_blocks: int,
    size: int,
    order: list[int],
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Make a pool that is full of other numbers, whose free blocks have been used in another order."""
    pool = student.BlockPool(config, n_blocks, size, dtype)
    pool.keys.fill_(POISON)
    pool.values.fill_(-POISON)
    blocks = pool.allocator.allocate(n_blocks)
    for place in order:
        pool.allocator.release([blocks[place]])
    return pool


def run(student: SimpleNamespace, challenge: Challenge, kept: Sequence[str]) -> list[Evidence]:
    """Do the operations of a challenge: `rows`, whose type is the pool's, `n_blocks`, `size`, `order`,
    `operations`. Before each "feed" all numbers in the pool change their sign.

    Args:
        kept: names of what is recorded after each operation, beside what it came to, see `records_form`.
    """
    n_blocks, rows = challenge["n_blocks"], challenge["rows"]
    dtype = getattr(torch, rows.dtype.name)
    pool = make_pool(student, CONFIG, n_blocks, challenge["size"], challenge["order"], dtype)
    returned: list[tuple[Any, np.ndarray]] = []  # by the last feed, and as it was

    def copied(pair: Any) -> np.ndarray:
        returned.append((pair, copied_pair(pair)))
        return returned[-1][1]

    handling = Handling(
        partial(student.PagedKVCache, pool),
        lambda tokens: given(rows[..., tokens, :], dtype),
        feed=partial(feed_parts, copied=copied),
    )
    caches: list[Any] = []
    records = []
    before: list[list[int]] = []
    reached = True
    for n_caches, operation in zip(_caches(challenge), challenge["operations"], strict=True):
        outcome, error, layers = "returned", "", []
        if operation[0] == "feed":  # what is held is in the pool alone, see `count_turns`
            pool.keys.neg_()
            pool.values.neg_()
            if not all(np.array_equal(copied_pair(pair), then) for pair, then in returned):
                outcome, reached = MOVED, False
            returned.clear()
        if reached:
            outcome, error, layers = attempt(operation, caches, handling)
            if layers and isinstance(layers[0], str):  # words in the place of rows
                outcome, error, layers = InputChanged.__name__, layers[0], []
            reached = outcome in ("returned", "CacheFull")
        tables = [list(map(int, cache.table)) for cache in caches]
        rest = [0] * (n_caches - len(caches))  # where an operation failed that begins a cache
        all_of_it = {
            "returned": _joined(layers) if operation[0] == "feed" else np.zeros(0),
            "lengths": [len(cache) for cache in caches] + rest,
            "tables": named(tables) + [""] * len(rest),
            "stayed": _stayed(tables, before) + [""] * len(rest),
            "nbytes": [int(cache.nbytes()) for cache in caches] + rest,
            "limits": [int(cache.max_len) for cache in caches] + rest,
            "free": len(pool.allocator),
        }
        before = tables
        records.append(
            {"outcome": outcome, "words": error, **{name: all_of_it[name] for name in kept}}
        )
    return records


def count_turns(operations: Sequence[Operation]) -> list[int]:
    """Count how often the pool's numbers have changed their sign by the end of each operation."""
    return np.cumsum([name == "feed" for name, _, _ in operations]).tolist()


def _caches(challenge: Challenge) -> list[int]:
    """Count the caches that there are after each operation."""
    return np.cumsum([name in BEGINS for name, _, _ in challenge["operations"]]).tolist()


def records_form(challenge: Challenge, kept: Sequence[str]) -> list[Evidence]:
    """The form of what `run` returns."""
    forms = []
    for n in _caches(challenge):
        all_of_it = {
            "returned": np.ndarray,  # (2, L, 1, G, S, D), or of no size
            "lengths": [int] * n,
            "tables": [str] * n,
            "stayed": [str] * n,
            "nbytes": [int] * n,
            "limits": [int] * n,
            "free": int,
        }
        forms.append({"outcome": str, "words": str, **{name: all_of_it[name] for name in kept}})
    return forms


def named(tables: Sequence[Sequence[int]]) -> list[str]:
    """Name the blocks of all tables 0, 1, 2 … in the order in which they are met, whatever their numbers
    are: free blocks may be handed out in any order."""
    names: dict[int, int] = {}
    return [" ".join(str(names.setdefault(b, len(names))) for b in table) for table in tables]


def _stayed(tables: list[list[int]], before: list[list[int]]) -> list[str]:
    """Tell of each entry of each table whether it is the one before (=), another one (x) or new (+)."""
    then = [*before, *[[]] * (len(tables) - len(before))]
    return [
        "".join("+" if n >= len(old) else "=" if old[n] == b else "x" for n, b in enumerate(table))
        for table, old in zip(tables, then, strict=True)
    ]


def _joined(layers: list[np.ndarray]) -> np.ndarray:
    """Join what the layers returned; where their shapes differ, nothing of it can be right."""
    alike = len({getattr(layer, "shape", None) for layer in layers}) == 1
    return np.stack(layers, axis=1) if alike else np.zeros(len(layers))


BEGINS = ("new", "fork", "adopt")
NAMES = "ABCDEFGHIJKLMNOP"
WORDS = {
    "new": lambda what: "begins" + ("" if what is None else f" (max_len {what})"),
    "fork": lambda what: f"is a fork of {NAMES[what]}",
    "adopt": lambda what: (
        f"gets 1, not advanced, and adopts the first {what[1]} of {NAMES[what[0]]}'s blocks"
    ),
    "feed": lambda what: f"gets {len(what)}",
    "append": lambda what: f"gets {len(what)}, not advanced",
    "truncate": lambda what: f"truncates to {what}",
    "reset": lambda what: "resets",
}


def in_words(challenge: Challenge, step: int) -> str:
    """Say what was done up to an operation, that included. Caches are named in the order in which they
    begin: of a smaller case, some may be left out."""
    done = zip(challenge["operations"][: step + 1], _caches(challenge), strict=False)
    lines = [
        f"{NAMES[n - 1 if name in BEGINS else number]} {WORDS[name](what)}"
        for (name, number, what), n in done
    ]
    excerpt = lines if len(lines) <= 9 else [*lines[:3], "...", *lines[-5:]]
    return f"A pool of {challenge['n_blocks']} blocks of {challenge['size']} tokens: {', '.join(excerpt)}"


def stopped(challenge: Challenge, step: int, seen: Evidence, expected: str) -> str | None:
    """Say that an operation came out otherwise than it must, or give None."""
    if seen["outcome"] == expected:
        return None
    error = f" ({seen['words']})" if seen["words"] else ""
    if question := QUESTIONS.get(seen["outcome"]):
        before = step - (seen["outcome"] == MOVED)
        return f"{in_words(challenge, before)}: {seen['outcome']}. {question}"
    if " from layer " in seen["outcome"]:
        question = ALONE
    elif expected == "CacheFull":
        question = (
            "How many blocks are needed, a copy of a shared one included, how many are free, and where "
            "does max_len end?"
        )
    elif seen["outcome"] == "CacheFull":
        question = (
            "Which limit refuses it: how many blocks are missing, and where does max_len end?"
        )
    else:
        question = "Which of your lines is this?"
    outcome = "nothing was refused" if seen["outcome"] == "returned" else seen["outcome"]
    wanted = outcome_in_words(expected)
    return f"{in_words(challenge, step)}: {outcome}{error}, wanted is {wanted}. {question}"
