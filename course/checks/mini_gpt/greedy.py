"""Check that the likeliest token is taken, in every row."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.mini_gpt.outputs import call, form_error, one_output_each
from course.checks.recorder import given
from course.checks.recording import Array


def draw_logits(seed: int) -> Challenge:
    """Draw logits (B, V) that are mostly below 0; of one row, all below 0; of rows whose best two lie
    1e-9 apart, in float64; in float16; of many rows, equal in pairs; of many tokens, in which rows
    differ only at the end, and by little; and of rows whose best two are equal."""
    rng = np.random.default_rng(seed)
    B, V = int(rng.integers(2, 9)), int(rng.integers(10, 60))
    logits = 10 * rng.normal(size=(B, V)) - 20
    V = int(rng.integers(6, 12))
    below = -20 - 5 * rng.random((1, V))
    below[0, 0] -= 10  # who starts at token 0 must move on
    close = rng.normal(size=(3, V))
    second, best = np.sort(rng.permutation(V)[:2])  # who rounds takes the first of the two
    close[:, best] = 5.0
    close[:, second] = 5.0 - 1e-9
    half = rng.permutation(2 * V).reshape(2, V) / 4
    many = np.repeat(rng.normal(size=(40, V)), 2, axis=0)
    long = np.repeat(100 * rng.normal(size=(1, int(rng.integers(4100, 4500)))), 3, axis=0)
    long[1:, -1] = long.max() + 0.01
    long[2, -2] = long.max() + 0.01
    cases = [
        logits.astype(np.float32),
        below.astype(np.float32),
        close,
        half.astype(np.float16),
        many.astype(np.float32),
        long.astype(np.float32),
        np.float32([[1, 1, 0], [0, 2, 1], [0, 2, 2]]),
    ]
    return {"cases": cases}


def probe_greedy(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call greedy_next on each case, an array of logits."""
    return {"outputs": [call(student.greedy_next, given(case)) for case in challenge["cases"]]}


@check("greedy_next", draw=draw_logits, probe=probe_greedy, evidence=one_output_each)
def greedy_takes_the_likeliest(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Array], Array]
) -> Verdict:
    """Judge whether each row's token has the row's best logit."""
    for logits, out in zip(challenge["cases"], evidence["outputs"], strict=True):
        B, V = logits.shape
        if error := form_error(f"greedy_next on logits {(B, V)}", out, (B,), "int64"):
            tied = "Some of these logits are equal. How many tokens does each row give?"
            return failed(error.replace("Which axis is where?", tied) if V == 3 else error)
        likeliest = truth(logits)
        for b, (row, token) in enumerate(zip(logits, out["array"], strict=True)):
            if 0 <= token < V and row[token] == row[likeliest[b]]:  # of equal ones, any
                continue
            return failed(
                f"Logits {(B, V)}, {logits.dtype}: {wrong_token(row, b, token)}, while the best logit "
                f"of the row is {row[likeliest[b]]:.10g}. "
                f"{about_the_largest(logits, out['array'], likeliest)}"
            )
    return passed("The likeliest token of every row.")


def wrong_token(logits: Array, row: int, token: int) -> str:
    """Say what logit a token has."""
    V = len(logits)
    has = f"has {logits[token]:.10g}" if 0 <= token < V else f"is outside 0 … {V - 1}"
    return f"in row {row}, token {token} {has}"


def about_the_largest(logits: Array, tokens: Array, likeliest: Array) -> str:
    """Ask about the axis, or about how logits are compared where most rows are right."""
    if logits.shape[1] > 1000:
        return "Few tokens are right. Up to which token, and up to which logit, do you look?"
    if logits.dtype == np.float64:
        return "How many digits of the logits do you compare?"
    if (logits < 0).all():
        return (
            "All logits are below 0 here. With what do you compare, and is every token looked at?"
        )
    if len(tokens) > 1 and (tokens == tokens[0]).all():
        return "All rows got the same token. Does every row look at its own logits?"
    if (tokens == likeliest).mean() > 0.3:
        return "Some rows agree. Up to which row do you look?"
    return "Over which axis do you look, and for the largest of which tokens?"
