"""The hidden checks of lesson 06: attention and pooling against the oracle, one head at a time, and
sequences counted by the bytes of what a cache stores."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import gqa as visible
from course.checks.check import Challenge, by_name
from course.checks.gqa.pooling import draw_pooling, pooled_names
from course.config import GPTConfig


def attention(case: Challenge) -> np.ndarray:
    """Return what the queries of a case read, (B, H, T, D), float64."""
    return oracle.shared_attention(case["q"], case["k"], case["v"], case["mask"])


def draw_any_weights(seed: int) -> Challenge:
    """Draw as the visible checks do, with weights that know nothing of their means."""
    rng = np.random.default_rng([seed, 1])
    challenge = draw_pooling(seed)
    for case in challenge["cases"]:
        del case["means"]
        for name in pooled_names(case):
            shape = case["state"][name].shape
            case["state"][name] = rng.normal(0, 0.3, shape).astype(np.float32)
    return challenge


def mean_of_heads(case: Challenge, name: str) -> np.ndarray:
    """Pool a weight, (G · D, C), float64."""
    head_dim = GPTConfig(**case["config"]).head_dim
    return oracle.pooled_heads(case["state"][name], head_dim, case["wanted"])


def one_sequence(case: Challenge) -> int:
    """Count the bytes of a cache: a key and a value of D numbers for each token, KV head and layer."""
    c = case["config"]
    numbers = c["d_model"] // c["n_heads"] * c["n_kv_heads"] * c["n_layers"] * case["n_tokens"]
    return (numbers + numbers) * case.get("bytes_per_element", 2)


CHECKS = by_name(
    visible.heads_stand_in_a_row,
    visible.grouped_equals_repeated.hidden(truth=attention),
    visible.masks_reach_every_head.hidden(truth=attention),
    visible.nothing_is_expanded.hidden(truth=attention),
    visible.pooled_heads_are_means.hidden(truth=mean_of_heads, challenge=draw_any_weights),
    visible.pooling_keeps_the_rest.hidden(challenge=draw_any_weights),
    visible.batch_fills_the_memory.hidden(truth=one_sequence),
    visible.edge_of_the_memory.hidden(truth=one_sequence),
)
