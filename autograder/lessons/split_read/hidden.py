"""The hidden checks of lesson 09: sums and means of one query at a time, in float64."""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import split_read as visible
from course.checks.check import Challenge, by_name

Numbers = dict[str, np.ndarray]


def part(case: Challenge) -> Numbers:
    """Return the top, the total and the weighted sum of values of each query of a case."""
    q, k, v = (np.asarray(case[name], np.float64) for name in ("q", "k", "v"))
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    seen = np.broadcast_to(True if case["mask"] is None else case["mask"], (B, H, T, S))
    top, total, out = np.full((B, H, T, 1), -np.inf), np.zeros((B, H, T, 1)), np.zeros((B, H, T, D))
    for at in np.ndindex(B, H, T):
        b, h, _ = at
        of = h // (H // G)
        keys, values = k[b, of][seen[at]], v[b, of][seen[at]]
        if len(keys):
            scores = keys @ q[at] / np.sqrt(D)
            weights = np.exp(scores - scores.max())
            top[at], total[at], out[at] = scores.max(), weights.sum(), weights @ values
    return {"top": top, "total": total, "out": out}


def whole(parts: list[Numbers]) -> Numbers:
    """Add up parts: each of their sums counts from its own top, the whole's from the highest."""
    top = np.max([np.asarray(p["top"], np.float64) for p in parts], axis=0)
    sums = {}
    for name in ("total", "out"):
        sums[name] = np.zeros(parts[0][name].shape)
        for p in parts:
            weight = np.where(np.isneginf(p["top"]), 0, np.exp(np.fmin(p["top"] - top, 0)))
            sums[name] += weight * p[name]
    return {"top": top, **sums}


def merged(case: Challenge) -> dict:
    """Return what parts are together, that as a mean, and the first part alone as a mean."""
    together, first = whole(case["parts"]), case["parts"][0]
    return {
        "whole": together,
        "finished": together["out"] / together["total"],
        "alone": np.asarray(first["out"], np.float64) / first["total"],
    }


def attention(case: Challenge) -> np.ndarray:
    """Return what the queries of a case read of all keys, (B, H, T, D)."""
    return oracle.shared_attention(case["q"], case["k"], case["v"], case["mask"])


def masked(case: Challenge) -> np.ndarray | Numbers:
    """Return what queries read under a mask, or what a pair of parts is together."""
    if "parts" in case:
        with np.errstate(invalid="ignore"):
            return whole(case["parts"])
    return attention(case)


def blocks(case: Challenge) -> np.ndarray:
    """Return what the queries of one conversation read of its tokens, laid out in a row."""
    size = case["keys"].shape[2]
    tokens = [(case["table"][t // size], t % size) for t in range(case["length"])]
    k, v = (
        np.stack([case[name][block, :, place] for block, place in tokens], axis=1)[None]
        for name in ("keys", "values")
    )  # (1, G, length, D)
    return oracle.shared_attention(case["q"], k, v)


def shared(case: Challenge) -> np.ndarray:
    """Return what each chat reads of the prefix and its own tokens, laid out in a row."""
    rows = []
    for b in range(len(case["q"])):
        k, v = (
            np.concatenate([case[f"prefix_{x}"], case[f"own_{x}"][b : b + 1]], axis=2) for x in "kv"
        )
        rows.append(oracle.shared_attention(case["q"][b : b + 1], k, v))
    return np.concatenate(rows)


CHECKS = by_name(
    visible.parts_say_their_sums.hidden(truth=part),
    visible.any_cut_any_order.hidden(truth=merged),
    visible.far_apart_scores.hidden(truth=attention),
    visible.inputs_stay.hidden(truth=merged),
    visible.parts_nobody_sees.hidden(truth=masked),
    visible.nothing_large_is_made.hidden(truth=attention),
    visible.blocks_where_they_lie.hidden(truth=blocks),
    visible.prefix_is_read_once.hidden(truth=shared),
)
