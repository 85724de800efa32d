"""The hidden checks of lesson 14: loops over pages and rows, in float64."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import sparse_read as visible
from course.checks.check import Challenge, by_name


def bounds(case: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest numbers of each page."""
    keys, size = case["keys"].astype(case["dtype"]), case["size"]
    B, G, S, D = keys.shape
    least, largest = (np.empty((B, G, -(-S // size), D), keys.dtype) for _ in range(2))
    for b, g, page, d in np.ndindex(least.shape):
        numbers = keys[b, g, page * size : (page + 1) * size, d]
        least[b, g, page, d], largest[b, g, page, d] = min(numbers), max(numbers)
    return least, largest


def scores(case: Challenge) -> np.ndarray:
    """Return the largest bound of the heads of each group, page by page."""
    q = case["q"].astype(np.float64)
    (B, H, _, D), (G, P) = q.shape, case["least"].shape[1:3]
    best = np.full((B, G, P), -np.inf)
    for b, h, page in np.ndindex(B, H, P):
        g, total = h // (H // G), 0.0
        for d in range(D):
            ends = (case[name][b, g, page, d] for name in ("least", "largest"))
            total += max(q[b, h, 0, d] * float(end) for end in ends)
        best[b, g, page] = max(best[b, g, page], total / np.sqrt(D))
    return best


def read(case: Challenge) -> np.ndarray:
    """Return what each head reads of its pages' rows, laid out in a row."""
    (B, H, _, D), (G, S), size = case["q"].shape, case["k"].shape[1:3], case["size"]
    out = np.empty((B, H, 1, D))
    for b, h in np.ndindex(B, H):
        g = h // (H // G)
        rows = [s for s in range(S) if s // size in case["pages"][b, g]]
        q, k, v = case["q"][b, h], case["k"][b, g, rows], case["v"][b, g, rows]
        everything = np.ones((1, len(rows)), bool)
        out[b, h] = oracle.attend(*(x.astype(np.float64) for x in (q, k, v)), everything)
    return out


def attended(case: Challenge) -> np.ndarray:
    """Return what each row gets of the weights of all queries of its group, (B, G, S)."""
    q, k = case["q"].astype(np.float64), case["k"].astype(np.float64)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    total = np.zeros((B, G, S))
    for b, h, t in np.ndindex(B, H, T):
        g, n_seen = h // (H // G), S - T + t + 1
        total[b, g, :n_seen] += oracle.softmax(k[b, g, :n_seen] @ q[b, h, t] / np.sqrt(D))
    return total


CHECKS = by_name(
    visible.bounds_of_each_page.hidden(truth=bounds),
    visible.no_score_is_above,
    visible.bound_is_tight.hidden(truth=scores),
    visible.newest_and_best,
    visible.chosen_pages_alone.hidden(truth=read),
    visible.the_rest_is_not_read.hidden(truth=read),
    visible.kept_are_the_most_attended.hidden(truth=attended),
    visible.freed.hidden(truth=attended),
)
