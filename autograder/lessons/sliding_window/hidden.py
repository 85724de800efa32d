"""The hidden checks of lesson 08: the visible ones, on inputs that nobody knows. Here is what they
compare with, counted token by token."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autograder import oracle
from course.checks import sliding_window as visible
from course.checks.check import Challenge, by_name
from course.checks.sliding_window.masks import of_sinks


def sees(query: int, token: int, window: int, n_sinks: int) -> bool:
    """Tell whether token `query` looks at another: by counting back from itself, or at a sink."""
    return token in range(query, query - window, -1) or token in range(min(n_sinks, query + 1))


def mask(new: Iterable[int], rows: Iterable[int], window: int, n_sinks: int = 0) -> np.ndarray:
    """Decide about every pair, (T, R) bool."""
    return np.array([[sees(int(i), int(j), window, n_sinks) for j in rows] for i in new])


def mask_of_sinks(new: np.ndarray, rows: np.ndarray, window: int, n_sinks: int = 0) -> np.ndarray:
    """Decide about the pairs that tell of sinks, (T, R) bool."""
    sizes = (window, n_sinks)
    return mask(new, rows, *sizes) & of_sinks(new, rows, *sizes)


def places(tokens: np.ndarray, window: int, n_sinks: int = 0) -> np.ndarray:
    """Find each token's place, (n,) int64."""
    of_ring = [n_sinks + np.fmod(max(t - n_sinks, 0), window) for t in tokens.tolist()]
    return np.where(tokens < n_sinks, tokens, np.array(of_ring, dtype=np.int64))


def logits(challenge: Challenge, tokens: np.ndarray, window: int, n_sinks: int) -> np.ndarray:
    """Compute the oracle's logits (B, T, V) with a window in every layer, float64."""
    T = tokens.shape[1]
    seen = mask(range(T), range(T), window, n_sinks)
    return oracle.forward(challenge["state"], challenge["config"], tokens, seen=seen)


def outcomes(case: Challenge) -> list[str]:
    """Follow the operations with the set of rows that are there; say what each must come to."""
    present: set[int] = set()
    length, results = 0, []
    for name, size in case["operations"]:
        if name == "feed":
            fits = length + size <= case["max_len"]
            results.append("returned" if fits else "CacheFull")
            if fits:
                length += size
                present |= set(range(length - size, length))
                ring = range(length - case["window"], length)
                present = {t for t in present if t < case["n_sinks"] or t in ring}
            continue
        n = size if name == "truncate" else 0
        needed = {t for t in range(max(n, 0)) if sees(n, t, case["window"], case["n_sinks"])}
        possible = 0 <= n <= length and needed <= present
        results.append("returned" if possible else "ValueError")
        if possible:
            length, present = n, {t for t in present if t < n}
    return results


def cache_bytes(config: dict[str, int], tokens: int, window: int, *others: int) -> int:
    """Count bytes layer by layer: of each row, keys and values of every KV head."""
    n_sinks, n_full, batch, n_bytes = [*others, *(0, 0, 1, 2)[len(others) :]]
    numbers = np.zeros((2, batch, config["n_kv_heads"], config["d_model"] // config["n_heads"]))
    rings = [min(tokens, n_sinks + window)] * (config["n_layers"] - n_full)
    return n_bytes * numbers.size * sum([tokens] * n_full + rings)


CHECKS = by_name(
    visible.mask_counts_itself.hidden(truth=mask),
    visible.sinks_are_no_future.hidden(truth=mask_of_sinks),
    visible.one_place_each.hidden(truth=places),
    visible.gone_is_gone_kept_is_kept,
    visible.every_split_equals_the_windowed_model.hidden(truth=logits),
    visible.append_alone_changes_nothing,
    visible.refusal_and_return.hidden(truth=outcomes),
    visible.bytes_stay.hidden(truth=cache_bytes),
    visible.bytes_by_layer.hidden(truth=cache_bytes),
)
