"""The forward passes that lesson 05's bills are drawn for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from course.checks.check import Challenge
from course.checks.roofline.misread import Answer
from course.model.config import GPTConfig


class Call(NamedTuple):
    """One forward pass: T new tokens after P cached ones in each of B rows."""

    n_new: int
    n_past: int
    batch: int
    bytes_per_element: int


Sizes = dict[str, Any]
"""A GPTConfig as a dict of its fields."""
Truth = Callable[[Sizes, Call, bool], dict[str, Answer]]
"""The answer to each field that a check asks for, by the field's name; called with sizes, a call, and
whether to tell what misreadings give."""


class Case(NamedTuple):
    """One call through a model, and whether its numbers tell misreadings apart."""

    config: Sizes
    call: Call
    telling: bool = False


def draw_config(rng: np.random.Generator, n_kv_heads: int, tied: bool) -> Sizes:
    """Draw a small model.

    No two of its sizes are equal, and 2 (keys and values), 3 (query heads a KV head) and the
    layers are different primes, so that what is missing can be told by its factor.
    """
    D = 2 * int(rng.integers(2, 7))
    C = 6 * D
    d_ff = C + 2 * int(rng.integers(3, 12)) + 1
    V = 2 * C + 2 * int(rng.integers(5, 30)) + 1
    L = int(rng.choice([5, 7]))
    config = GPTConfig(V, L, C, 6, n_kv_heads, d_ff, max_seq_len=64, tie_embeddings=tied)
    return config.to_dict()


def draw_large_config(rng: np.random.Generator) -> Sizes:
    """Draw a model whose counts fit neither into 32 bits nor into a float of 32 bits."""
    D = 2 * int(rng.integers(66, 90))
    C = 6 * D
    d_ff, V = (int(n) for n in 2 * rng.integers(C, 2 * C, 2) + 1)
    L = int(rng.choice([37, 41, 43]))
    return GPTConfig(70_000 + V, L, C, 6, 2, d_ff, max_seq_len=64).to_dict()


def lay_out(
    rng: np.random.Generator, T: int, P: int, B: int, longest: int, max_seq_len: int
) -> Challenge:
    """Draw models and passes through them, small ones first.

    Through models with grouped heads, with as many KV heads as query heads (tied), and with one KV head
    go one token at the start of a text, a whole prompt, a chunk in the middle of a text, a batch of
    single tokens and a batch of chunks. Then come LONG ones: a prompt of `longest` tokens or some more, a
    batch after more than 4,096, a large model. The first case is asked once more at the end.

    All models have this max_seq_len. Whoever holds tokens to it has made one mistake: so those of
    attention and of the cache alone are more than that.
    """
    kinds = ((2, False), (6, True), (1, bool(rng.integers(2))))
    grouped, tied, shared = (draw_config(rng, *kind) for kind in kinds)
    many, past, rows = (n + int(rng.integers(90)) for n in (longest, 4100, 1030))
    drawn = [(model, (1, 0, 1, 4), False) for model in (grouped, tied)]
    drawn += [(grouped, (T, 0, 1, 4), True), (grouped, (T, P, 1, 1), False)]
    drawn += [(shared, (1, P, B, 8), False)]
    drawn += [(model, (T, P + T + 64, B, 2), True) for model in (grouped, tied, shared)]
    drawn += [(grouped, (many, 0, 1, 4), False), (shared, (1, past, rows, 2), False)]
    drawn += [(draw_large_config(rng), (T, P, B, 2), False), drawn[0]]
    drawn = [({**model, "max_seq_len": max_seq_len}, *others) for model, *others in drawn]
    return {"cases": [dict(zip(Case._fields, case, strict=True)) for case in drawn]}


def draw_passes(seed: int, longest: int = 1030, max_seq_len: int = 8192) -> Challenge:
    """Draw passes of a few and of some dozen tokens and rows, and longer ones."""
    rng = np.random.default_rng(seed)
    T, P, B = rng.choice(np.arange(2, 90), 3, replace=False).tolist()
    return lay_out(rng, T, P, B, longest, max_seq_len)


def draw_passes_beyond(seed: int) -> Challenge:
    """Draw passes through models whose texts end sooner, for the cache."""
    return draw_passes(seed, max_seq_len=64)


def draw_long_passes(seed: int) -> Challenge:
    """Draw them for attention, which makes the length of a prompt cost more than its tokens."""
    return draw_passes(seed, longest=4100, max_seq_len=64)


def cases(challenge: Challenge) -> list[Case]:
    """List the cases, smallest call first."""
    return [
        Case(case["config"], Call(*case["call"]), case["telling"]) for case in challenge["cases"]
    ]


CHUNK, LONG = 3, 8
"""The numbers of the case with a chunk after cached tokens, and of the first long case."""


def case_of_defaults(challenge: Challenge) -> Case:
    """Give the case that is also asked with batch and bytes_per_element left out: a chunk after cached
    tokens, and what the signatures name."""
    config, call, _ = cases(challenge)[CHUNK]
    return Case(config, Call(call.n_new, call.n_past, batch=1, bytes_per_element=2))


def call_text(case: Case, function: str = "phase_cost", by_default: bool = False) -> str:
    """Write a call as a student would, and the config's sizes in the letters of the course.

    Args:
        by_default: whether batch and bytes_per_element are left out.
    """
    c, call = GPTConfig(**case.config), case.call
    names = Call._fields if function == "phase_cost" else Call._fields[:3]
    names = names[:2] if by_default else names
    given = ", ".join(f"{name}={getattr(call, name)}" for name in names)
    tied = ", tied" if c.tie_embeddings else ""
    return (
        f"{function}(config, {given}) of L={c.n_layers}, C={c.d_model}, H={c.n_heads}, "
        f"G={c.n_kv_heads}, D={c.head_dim}, f={c.d_ff}, V={c.vocab_size}{tied}"
    )
