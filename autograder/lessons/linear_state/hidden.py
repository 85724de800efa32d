"""The hidden checks of lesson 17: the delta rule token by token in float64, bytes one by one."""

from __future__ import annotations

import numpy as np

from course.checks import linear_state as visible
from course.checks.check import Challenge, by_name
from course.checks.linear_state.passes import SIZES
from course.checks.linear_state.sizes import FIELDS


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale the vectors of the last axis to length 1; zeros stay zeros."""
    lengths = np.sqrt((vectors**2).sum(axis=-1, keepdims=True))
    return vectors / np.where(lengths > 0, lengths, 1)


def rule(case: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and last state of a case, one token at a time."""
    S, q, k, v, beta, decay = (
        case[name].astype(np.float64) for name in ("S", "q", "k", "v", "beta", "decay")
    )
    single = q.ndim == 3
    if single:
        q, k, v, beta, decay = (x[:, :, None] for x in (q, k, v, beta, decay))
    queries, keys, out = unit(q), unit(k), np.zeros(v.shape)
    for t in range(v.shape[2]):
        S, column = S * decay[:, :, t, None, None], keys[:, :, t, :, None]
        found = (column * S).sum(axis=2)  # (B, H, V)
        S = S + beta[:, :, t, None, None] * column * (v[:, :, t] - found)[:, :, None]
        out[:, :, t] = (queries[:, :, t, :, None] * S).sum(axis=2)
    return (out[:, :, 0] if single else out), S


def state_numbers(sizes: dict[str, int]) -> tuple[int, int]:
    """Count the numbers of the states and of the tail of one linear layer."""
    states = sum(sizes["key_dim"] * sizes["value_dim"] for _ in range(sizes["value_heads"]))
    channels = sum(sizes["key_dim"] for _ in range(2 * sizes["key_heads"]))
    channels += sum(sizes["value_dim"] for _ in range(sizes["value_heads"]))
    return states, sum(channels for _ in range(1, sizes["width"]))


def bytes_of(
    sizes: dict[str, int], batch: int = 1, state_element: int = 4, element: int = 2
) -> int:
    """Add up the bytes of all linear layers."""
    states, tail = state_numbers(sizes)
    layers = range(sizes["n_linear"])
    return sum(states * state_element + tail * element for _ in layers) * batch


def even(sizes: dict[str, int], state_element: int = 4, element: int = 2) -> int:
    """Add rows until they take as much."""
    target = bytes_of({**sizes, "n_linear": 1}, 1, state_element, element)
    tokens, rows = 0, 0
    while rows < target:
        tokens, rows = tokens + 1, rows + sizes["n_kv_heads"] * sizes["head_dim"] * element * 2
    return tokens


def weights(case: Challenge) -> list[int]:
    """Return the bytes of a cache's rows, and those of its states and tails of one length."""
    sizes, n_bytes = dict(zip(FIELDS[2:], SIZES, strict=True)), int(case["dtype"][5:]) // 8
    row = 2 * sizes["n_kv_heads"] * sizes["head_dim"]
    rows = sum(row * case["places"] for is_full in case["full"] if is_full)
    states = sum(sum(state_numbers(sizes)) for is_full in case["full"] if not is_full)
    return [numbers * n_bytes * case["batch"] for numbers in (rows, states)]


def spared(held: list[int], prompt: list[int], checkpoints: list[int]) -> int:
    """Return the longest of all beginnings that fit."""
    fitting = [
        n
        for n in range(len(prompt))
        if n <= len(held)
        and held[:n] == prompt[:n]
        and (n == 0 or n == len(held) or n in checkpoints)
    ]
    return fitting[-1]


CHECKS = by_name(
    visible.one_step_is_the_rule.hidden(truth=rule),
    visible.chunk_equals_steps.hidden(truth=rule),
    visible.a_chunk_is_no_loop.hidden(truth=rule),
    visible.bytes_of_states.hidden(truth=bytes_of),
    visible.break_even_tokens.hidden(truth=even),
    visible.every_split_keeps_the_same,
    visible.goes_back_or_refuses,
    visible.a_refusal_changes_nothing,
    visible.checkpoints_are_of_this_text,
    visible.a_checkpoint_costs_a_state.hidden(truth=weights),
    visible.resume_leaves_a_token.hidden(truth=spared),
)
