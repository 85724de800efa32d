"""The hidden checks of lesson 06: attention and pooling against the oracle, one head at a time, and
sequences counted by the bytes of what a cache stores."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import gqa as visible
from course.checks.check import Challenge, by_name
from course.model.config import GPTConfig


def attention(case: Challenge) -> np.ndarray:
    """Return what the queries of a case read, (B, H, T, D), float64."""
    return oracle.shared_attention(case["q"], case["k"], case["v"], case["mask"])


def mean_of_heads(case: Challenge, name: str) -> np.ndarray:
    """Pool a weight, (G · D, C), float64."""
    head_dim = GPTConfig(**case["config"]).head_dim
    return oracle.pooled_heads(case["state"][name], head_dim, case["n_pooled"])


def copies_of_heads(x: np.ndarray, n_rep: int) -> np.ndarray:
    """Write each head out n_rep times, (B, G · n_rep, S, D)."""
    heads = [x[:, g] for g in range(x.shape[1]) for _ in range(n_rep)]
    return np.stack(heads, axis=1)


def sequences(case: Challenge) -> dict[str, int]:
    """Count the bytes of a cache, a key and a value of D numbers for each token, KV head and layer; and
    the sequences that fit beside the weights."""
    c = case["config"]
    numbers = c["d_model"] // c["n_heads"] * c["n_kv_heads"] * c["n_layers"] * case["n_tokens"]
    one = (numbers + numbers) * case.get("bytes_per_element", 2)
    free = case["memory_bytes"] - case["weight_bytes"]
    return {"fits": free // one if free > 0 else 0, "bytes": one}


CHECKS = by_name(
    visible.heads_stand_in_a_row.hidden(truth=copies_of_heads),
    visible.grouped_equals_repeated.hidden(truth=attention),
    visible.masks_reach_every_head.hidden(truth=attention),
    visible.nothing_is_expanded.hidden(truth=attention),
    visible.pooled_heads_are_means.hidden(truth=mean_of_heads),
    visible.pooling_keeps_the_rest,
    visible.batch_fills_the_memory.hidden(truth=sequences),
    visible.edge_of_the_memory.hidden(truth=sequences),
)
