"""The hidden checks of lesson 06: attention and pooling against the oracle, one head at a time, and
sequences counted by the bytes of what a cache stores."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import gqa as visible
from course.checks.check import Challenge, by_name
from course.checks.gqa.attention import make_masked, make_shared, make_unexpanded
from course.checks.gqa.memory import make_fitting
from course.checks.gqa.pooling import draw_pooling, make_means, pooled_names
from course.config import GPTConfig


def attention(case: Challenge) -> np.ndarray:
    """Truth: (B, H, T, D), float64."""
    return oracle.shared_attention(case["q"], case["k"], case["v"], case["mask"])


def draw_any_weights(seed: int) -> Challenge:
    """The visible challenge with weights that know nothing of their means."""
    rng = np.random.default_rng([seed, 1])
    challenge = draw_pooling(seed)
    for case in challenge["cases"]:
        del case["means"]
        for name in pooled_names(case):
            shape = case["state"][name].shape
            case["state"][name] = rng.normal(0, 0.3, shape).astype(np.float32)
    return challenge


def mean_of_heads(case: Challenge, name: str) -> np.ndarray:
    """Truth: (G · D, C), float64."""
    head_dim = GPTConfig(**case["config"]).head_dim
    return oracle.pooled_heads(case["state"][name], head_dim, case["wanted"])


def one_sequence(case: Challenge) -> int:
    """Bytes of a cache: a key and a value of D numbers for each token, KV head and layer."""
    c = case["config"]
    numbers = c["d_model"] // c["n_heads"] * c["n_kv_heads"] * c["n_layers"] * case["n_tokens"]
    return (numbers + numbers) * case.get("bytes_per_element", 2)


CHECKS = by_name(
    visible.heads_stand_in_a_row,
    make_shared(attention),
    make_masked(attention),
    make_unexpanded(attention),
    make_means(mean_of_heads).hidden(challenge=draw_any_weights),
    visible.pooling_keeps_the_rest.hidden(challenge=draw_any_weights),
    make_fitting(
        "batch_fills_the_memory",
        one_sequence,
        at_the_edge=False,
        praise="As many sequences as there is room for beside the weights, and not one more.",
    ),
    make_fitting(
        "edge_of_the_memory",
        one_sequence,
        at_the_edge=True,
        praise="What fits to the byte fits; one byte less, one sequence less; never below 0.",
    ),
)
