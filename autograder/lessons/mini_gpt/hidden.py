"""The hidden checks of lesson 01: those of the visible ones. Here is what they compare with.

What a token sees and which heads share is asked by nudging: a running average, or keys and values that
are only added, would pass. So both checks bring one case more, in which the last token's query points
at one key, see `draw_pointing`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from autograder import oracle
from course.checks import mini_gpt as visible
from course.checks.check import Challenge, Check, Evidence, Verdict, by_name, failed
from course.checks.mini_gpt.attention import Case, attention_error
from course.checks.recording import Array


def heads_by_oracle(case: dict[str, Any]) -> dict[str, Array]:
    """Cut a case's x, and merge its heads, one row of the batch at a time."""
    return {
        "split": np.stack([oracle.split(row, case["n_heads"]) for row in case["x"]]),
        "merge": np.stack([np.concatenate(list(row), axis=1) for row in case["heads"]]),
    }


def last_by_oracle(case: tuple[Array, Array, Array]) -> Array:
    """Compute the output of the last token, (B, H, D)."""
    q, k, v = case
    rows = [
        oracle.attention_heads(*(np.float64(part[b]) for part in (q[:, :, -1:], k, v)))
        for b in range(len(q))
    ]
    return np.stack(rows)[:, :, 0]


def layer_by_oracle(layer: Challenge, case: int) -> Array:
    """Compute the output (B, T, C) of one of a layer's cases, equal rows once."""
    x, positions = layer["cases"][case]
    rows, places = np.unique(np.float64(x), axis=0, return_inverse=True)
    of_each = [
        oracle.attention_layer(
            layer["state"], "blocks.0.attn.", layer["config"], row, np.float64(positions)
        )[0]
        for row in rows
    ]
    return np.stack(of_each)[places.ravel()]


def best_of_each(logits: Array) -> Array:
    """Look at every logit for the largest of each row, (B,)."""
    return np.array([max(range(len(row)), key=row.__getitem__) for row in logits.tolist()])


def softmax_of(scores: Array) -> Array:
    """The softmax of one row in which a dropped token has −∞; NaN where none is left."""
    with np.errstate(invalid="ignore"):
        return oracle.softmax(scores)


def probabilities(logits: list[float], settings: dict[str, Any]) -> dict[str, Array]:
    """Compute the probabilities (V,) that fair draws from one row follow, "right", and those of the
    mistakes in `sampling.QUESTIONS` that are others."""
    row, temperature = np.float64(logits), settings.get("temperature", 1.0)
    V, top_k = len(row), settings.get("top_k") or len(row)
    order = np.argsort(-row)

    def kept(n: int, dropped: float = -np.inf) -> Array:
        scores = np.full(V, dropped)
        scores[order[:n]] = row[order[:n]]
        return scores

    lowest = np.full(V, -np.inf)
    lowest[order[V - top_k :]] = row[order[V - top_k :]]
    right = softmax_of(kept(top_k) / temperature)
    mistakes = {
        "temperature unused": softmax_of(kept(top_k)),
        "temperature multiplied": softmax_of(kept(top_k) * temperature),
        "all alike": (right > 0) / top_k,
        "top_k unused": softmax_of(row / temperature),
        "one more": softmax_of(kept(min(top_k + 1, V)) / temperature),
        "one less": softmax_of(kept(max(top_k - 1, 1)) / temperature),
        "the least likely": softmax_of(lowest / temperature),
        "zero for the others": softmax_of(kept(top_k, dropped=0.0) / temperature),
    }
    if temperature > 0.1:  # below, what bounds the temperature gives nearly the same
        mistakes["softmax twice"] = softmax_of(softmax_of(kept(top_k)) / temperature)
    others = {name: p for name, p in mistakes.items() if 0.5 * np.abs(p - right).sum() > 0.02}
    return {"right": right, **others}


# --- a query that points at one key ---------------------------------------------------------------


def draw_pointing(draw: Callable[[int], Challenge], seed: int) -> Challenge:
    """Draw a challenge, and one case more of the first one's sizes: in every KV head one key lies along
    the queries, and its score is near 50 where the others are near 0."""
    challenge, rng = draw(seed), np.random.default_rng([seed, 1])
    q, k, v = (rng.normal(size=part.shape).astype(part.dtype) for part in challenge["cases"][0])
    B, G, T, D = k.shape
    k[..., 0], q[..., 0] = 0.0, 10 * np.sqrt(D)
    row, head = np.ogrid[:B, :G]
    k[row, head, rng.integers(T, size=(B, G)), 0] = 5.0
    return {**challenge, "cases": [*challenge["cases"], (q, k, v)]}


def judge_pointing(check: Check) -> Callable[..., Verdict]:
    """Make a verdict that judges as the visible one does, and then the case that `draw_pointing` adds."""

    def verdict(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
        *cases, case = challenge["cases"]
        *outputs, out = evidence["outputs"]
        fewer = {**challenge, "cases": cases}
        visible_verdict = check.verdict(
            fewer, {**evidence, "outputs": outputs}, tolerance=tolerance
        )
        if visible_verdict.score < 1:
            return visible_verdict
        wrong = wrong_pointing(case, out, tolerance)
        return failed(wrong) if wrong else visible_verdict

    return verdict


def wrong_pointing(case: Case, out: Evidence, tolerance: float) -> str | None:
    """Say that the last token's output is not the value of the key to which all its weight goes, or None.

    How scores are scaled makes no difference here, nor does the mask.
    """
    if error := attention_error(out, case):
        return error
    difference = np.abs(out["array"][:, :, -1] - last_by_oracle(case)).max(axis=-1)  # (B, H)
    if difference.max() <= tolerance:
        return None
    b, h = np.argwhere(difference > tolerance)[0].tolist()
    return (
        f"{case[0].shape[2]} tokens; the last one's query meets one key with a score near 50, and the "
        f"others with scores near 0. Its output in row {b}, head {h}, is not that key's value (max |Δ| "
        f"{difference[b, h]:.2g}, tolerance {tolerance:g}). Where do query and key decide what is "
        f"averaged?"
    )


def with_pointing(check: Check) -> Check:
    """Make the hidden check of a visible one that only nudges."""
    return check.hidden(
        challenge=partial(draw_pointing, check.challenge), verdict=judge_pointing(check)
    )


CHECKS = by_name(
    visible.heads_split_and_merge.hidden(truth=heads_by_oracle),
    with_pointing(visible.attention_sees_no_future),
    visible.attention_weighs_by_softmax.hidden(truth=last_by_oracle),
    with_pointing(visible.query_heads_share_kv_heads),
    visible.layer_joins_its_parts.hidden(truth=layer_by_oracle),
    visible.layer_obeys_positions.hidden(truth=layer_by_oracle),
    visible.greedy_takes_the_likeliest.hidden(truth=best_of_each),
    visible.sample_follows_temperature.hidden(truth=probabilities),
    visible.sample_stays_in_top_k.hidden(truth=probabilities),
    visible.bad_arguments_are_refused,
)
