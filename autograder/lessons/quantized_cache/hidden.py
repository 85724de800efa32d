"""The hidden checks of lesson 07: those of the visible ones, with more vectors besides. Here is what they
compare with."""

from __future__ import annotations

import numpy as np

from course.checks import quantized_cache as visible
from course.checks.check import Challenge, by_name
from course.checks.quantized_cache.rounding import case_of, draw_case, draw_vectors


def stand_for(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Count steps from zero, in float64."""
    return zero.astype(float) + scale.astype(float) * codes


def nibbles(function: str, given: np.ndarray) -> np.ndarray:
    """Pack codes (…, n) into bytes (…, n / 2), the first of two neighbours low; or unpack bytes."""
    if function == "unpack_int4":
        return np.stack(np.divmod(given, 16)[::-1], axis=-1).reshape(*given.shape[:-1], -1)
    pairs = given.astype(int).reshape(*given.shape[:-1], -1, 2)
    return (pairs @ np.array([1, 16])).astype(np.uint8)


def coded(group: int, window: int, tokens: int) -> int:
    """Count the tokens that are codes, token by token."""
    waiting = done = 0
    for _ in range(tokens):
        waiting += 1
        if waiting == window + group:
            waiting, done = window, done + group
    return done


def cache_bytes(config: dict[str, int], tokens: int, *others: int) -> list[int]:
    """Count bytes of codes, scales and window, token by token and group by group."""
    batch, bits, group, window, n_bytes = others or (1, 8, 64, 32, 2)
    D = config["d_model"] // config["n_heads"]
    codes = scales = most = recent = 0
    for _ in range(tokens):  # of one KV head, keys and values
        recent += 1
        most = max(most, recent if recent < window + group else 0)
        if recent == window + group:
            recent -= group
            codes += 2 * group * D * bits // 8
            scales += 2 * n_bytes * (D + group)  # a scale and a zero for each channel and token
    heads = config["n_layers"] * batch * config["n_kv_heads"]
    return [heads * codes, heads * scales, heads * 2 * most * D * n_bytes]


def draw_more_vectors(seed: int) -> Challenge:
    """Draw the visible challenge, with longer vectors and more of float16 besides."""
    rng = np.random.default_rng([seed, 1])
    drawn = draw_vectors(seed)
    more = [
        draw_case(rng, (2, 40, 3), int(rng.choice([4, 8])), int(rng.choice([1, -2]))),
        case_of(rng.normal(size=(4, 2, 90)), rng.choice([4, 8]), rng.choice([2, -1]), "float16"),
    ]
    return {**drawn, "cases": [*drawn["cases"], *more]}


CHECKS = by_name(
    visible.half_a_step_at_most.hidden(challenge=draw_more_vectors, truth=stand_for),
    visible.codes_fit_their_bits,
    visible.flat_vectors_stay_finite,
    visible.two_codes_share_a_byte.hidden(truth=nibbles),
    visible.groups_and_a_window.hidden(truth=coded),
    visible.keys_by_channel_values_by_token,
    visible.every_split_leaves_the_same.hidden(truth=coded),
    visible.a_refusal_changes_nothing.hidden(truth=coded),
    visible.quantized_cache_can_go_back.hidden(truth=coded),
    visible.bytes_match_codes_scales_window.hidden(truth=cache_bytes),
)
