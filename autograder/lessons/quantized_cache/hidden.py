"""The hidden checks of lesson 07: those of the visible ones, with longer and float16 vectors besides;
bytes are counted here by other arithmetic."""

from __future__ import annotations

import numpy as np

from course.checks import quantized_cache as visible
from course.checks.check import Challenge, by_name
from course.checks.quantized_cache.rounding import draw_vectors


def pack(codes: np.ndarray) -> np.ndarray:
    """Pack codes (…, n) into bytes (…, n / 2), the first of two neighbours low."""
    pairs = codes.astype(int).reshape(*codes.shape[:-1], -1, 2)
    return (pairs @ np.array([1, 16])).astype(np.uint8)


def cache_bytes(case: Challenge) -> list[int]:
    """Count bytes of codes, scales and window, token by token and group by group."""
    sizes, group, window = case["config"], case["group"], case["window"]
    D = sizes["d_model"] // sizes["n_heads"]
    number = {"float16": 2, "float32": 4}[case["dtype"]]
    codes = scales = most = recent = 0
    for _ in range(case["tokens"]):  # of one KV head, keys and values
        recent += 1
        most = max(most, recent if recent < window + group else 0)
        if recent == window + group:
            recent -= group
            codes += 2 * group * D * case["bits"] // 8
            scales += 2 * number * (D + group)  # a scale and a zero for each channel and token
    heads = sizes["n_layers"] * case["batch"] * sizes["n_kv_heads"]
    return [heads * codes, heads * scales, heads * 2 * most * D * number]


def draw_more_vectors(seed: int) -> Challenge:
    """Draw the visible challenge, with longer vectors and float16 besides."""
    rng = np.random.default_rng([seed, 1])
    long = (rng.normal(size=(2, 40, 3)) * 10 ** rng.uniform(-2, 2, (2, 1, 3))).astype(np.float32)
    half = (rng.normal(size=(4, 2, 9)) * 10 ** rng.uniform(-1, 1, (4, 2, 1))).astype(np.float16)
    more = [
        {"x": long, "bits": int(rng.choice([4, 8])), "dim": int(rng.choice([1, -2]))},
        {"x": half, "bits": 4, "dim": int(rng.choice([2, -1]))},
    ]
    return {"cases": [*draw_vectors(seed)["cases"], *more]}


CHECKS = by_name(
    visible.half_a_step_at_most.hidden(challenge=draw_more_vectors),
    visible.codes_fit_their_bits.hidden(challenge=draw_more_vectors),
    visible.flat_vectors_stay_finite,
    visible.two_codes_share_a_byte.hidden(truth=pack),
    visible.groups_and_a_window,
    visible.keys_by_channel_values_by_token,
    visible.every_split_leaves_the_same,
    visible.a_refusal_changes_nothing,
    visible.quantized_cache_can_go_back,
    visible.bytes_match_codes_scales_window.hidden(truth=cache_bytes),
)
