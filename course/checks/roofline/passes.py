"""The forward passes that lesson 05's bills are drawn for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from course.checks.check import Challenge
from course.config import GPTConfig


class Call(NamedTuple):
    """One forward pass: T new tokens after P cached ones in each of B rows."""

    n_new: int
    n_past: int
    batch: int
    bytes_per_element: int


Sizes = dict[str, Any]
"""A GPTConfig as a dict of its fields."""
Bill = dict[str, int]
"""`matrix_flops`, `attention_flops`, and the four byte counts of a Cost, by name."""
Truth = Callable[[Sizes, Call], Bill]


def draw_configs(rng: np.random.Generator) -> list[Sizes]:
    """Draw three models: grouped heads; as many KV heads as query heads, tied; one KV head.

    No two sizes of a model are equal, and 2 (keys and values), 3 (query heads a KV head) and the
    layers are different primes, so that what is missing can be told by its factor.
    """
    configs = []
    for n_kv_heads, tied in ((2, False), (6, True), (1, bool(rng.integers(2)))):
        D = 2 * int(rng.integers(2, 7))
        C = 6 * D
        d_ff = C + 2 * int(rng.integers(3, 12)) + 1
        V = 2 * C + 2 * int(rng.integers(5, 30)) + 1
        L = int(rng.choice([5, 7]))
        config = GPTConfig(V, L, C, 6, n_kv_heads, d_ff, max_seq_len=64, tie_embeddings=tied)
        configs.append(config.to_dict())
    return configs


def draw_passes(seed: int) -> Challenge:
    """Draw models, and for all of them: one token at the start of a text, a whole prompt, a chunk in
    the middle of a text, a batch of single tokens, a batch of chunks."""
    rng = np.random.default_rng(seed)
    configs = draw_configs(rng)
    T, P, B = (int(n) for n in rng.permutation([3, 5, 7]))
    calls = [(1, 0, 1, 4), (T, 0, 1, 4), (T, P, 1, 2), (1, P, B, 4), (T, P + 6, B, 2)]
    return {"configs": configs, "calls": calls}


def cases(challenge: Challenge) -> list[tuple[Sizes, Call]]:
    """Pair each config with each call, smallest call first."""
    return [
        (config, Call(*sizes)) for sizes in challenge["calls"] for config in challenge["configs"]
    ]


def case_of_defaults(challenge: Challenge) -> tuple[Sizes, Call]:
    """Give the case that is also asked with batch and bytes_per_element left out: a chunk after cached
    tokens, and what the signatures name."""
    n_new, n_past, *_ = challenge["calls"][2]
    return challenge["configs"][0], Call(n_new, n_past, batch=1, bytes_per_element=2)


def call_text(
    config: Sizes, call: Call, function: str = "phase_cost", by_default: bool = False
) -> str:
    """Write a call as a student would, and the config's sizes in the letters of the course.

    Args:
        by_default: whether batch and bytes_per_element are left out.
    """
    c = GPTConfig(**config)
    names = Call._fields if function == "phase_cost" else Call._fields[:3]
    names = names[:2] if by_default else names
    given = ", ".join(f"{name}={getattr(call, name)}" for name in names)
    tied = ", tied" if c.tie_embeddings else ""
    return (
        f"{function}(config, {given}) of L={c.n_layers}, C={c.d_model}, H={c.n_heads}, "
        f"G={c.n_kv_heads}, D={c.head_dim}, f={c.d_ff}, V={c.vocab_size}{tied}"
    )
