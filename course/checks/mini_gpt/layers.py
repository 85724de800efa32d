"""Challenges and verdicts for the attention layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.drawing import draw_model
from course.checks.mini_gpt.probes import Array, form_error, gap, moved

FEATURES = ("query", "key", "value")  # columns 0, 1, 2 of x feed that matrix and no other
Truth = Callable[[Challenge, int], Array]
"""Gives the output (B, T, C) of a layer for one of its cases, by number."""


def draw_layer(seed: int) -> Challenge:
    """Draw a layer and its cases: a token alone; five tokens; then, for each of query, key and value,
    and each token j, the same five with the number changed that feeds only that part of token j. Then
    draw a second layer with weights of its own, in float64."""
    rng = np.random.default_rng(seed)
    T = 5
    challenge = draw_model(rng, n_layers=1)
    for column, part in enumerate(("wq", "wk", "wv")):
        for other in {"wq", "wk", "wv"} - {part}:
            challenge["state"][f"blocks.0.attn.{other}.weight"][:, column] = 0
    C = challenge["config"]["d_model"]
    x = rng.normal(size=(1, T, C)).astype(np.float32)
    cases = [(x[:, :1], np.array([7])), (x, np.arange(T))]
    for column in range(len(FEATURES)):
        for j in range(T):
            other = x.copy()
            other[:, j, column] += 3
            cases.append((other, np.arange(T)))
    second = {**draw_model(rng, n_layers=1), "cases": [(rng.normal(size=(2, 3, C)), np.arange(3))]}
    return {"layers": [{**challenge, "cases": cases}, second]}


def judge_layer(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge what a token alone gives, then which tokens use whose query, key and value, and then the
    numbers."""
    first, second = challenge["layers"]
    *outputs, last = evidence["outputs"]
    for layer, of_layer in ((first, outputs), (second, [last])):
        if wrong := malformed_layer(layer, {"outputs": of_layer}):
            return wrong
    alone, base, *others = [out["array"] for out in outputs]
    if (difference := gap(alone, truth(first, 0))) > tolerance:
        return failed(
            "A token alone can only attend to itself, so its output is its value, sent through "
            f"wo. Yours differs (max |Δ| {difference:.2g}, tolerance {tolerance:g}; position 7). "
            "What happens to the value on its way out?"
        )
    if wrong := judge_features(base, others, tolerance):
        return wrong
    if wrong := judge_numbers(first, 1, base, truth, tolerance):
        return wrong
    if wrong := judge_numbers(second, 0, last["array"], truth, tolerance):
        return failed(f"A second layer, with weights of its own: {wrong.message}")
    return passed("A query serves its own token; a key and a value serve every later one too.")


def judge_features(base: Array, others: list[Array], tolerance: float) -> Verdict | None:
    """Judge which outputs another query, key or value of one token moved; None where it is right."""
    T = base.shape[1]
    for i, other in enumerate(others):
        part, j = FEATURES[i // T], i % T
        tokens = moved(base, other, 1, tolerance)
        expected = {
            "query": [j] if j else [],  # token 0 has only itself to look at
            "key": [t for t in range(j, T) if t],
            "value": list(range(j, T)),
        }[part]
        if tokens != expected:
            return failed(
                f"{T} tokens: another {part} for token {j} moved the outputs of tokens {tokens}; "
                f"expected {expected or 'none: it has only itself to look at'}. "
                f"Which tokens use the {part} of token {j}?"
            )
    return None


def judge_numbers(
    layer: Challenge, case: int, output: Array, truth: Truth, tolerance: float
) -> Verdict | None:
    """Fail the first token whose output is another than the oracle's, or give None."""
    positions, config = layer["cases"][case][1], layer["config"]
    difference = np.abs(output - truth(layer, case)).max(axis=-1)  # (B, T)
    if difference.max() <= tolerance:
        return None
    t, b = np.argwhere((difference > tolerance).T)[0].tolist()
    question = (
        "A token alone attends to itself: what happens to its value on the way in and out?"
        if t == 0
        else f"Token 0 agrees. Which parts of token {t}'s output come from a query that meets a "
        "key, and what is done to both before they meet?"
    )
    if b > 0 and not (difference[0] > tolerance).any():
        question = "Row 0 agrees in every token. Which axis of your tensors holds the batch?"
    return failed(
        f"{config['n_heads']} heads, {config['n_kv_heads']} KV heads, positions "
        f"{brief(positions.tolist())}: token {t} of row {b} is the first that differs (max |Δ| "
        f"{difference[b, t]:.2g}, tolerance {tolerance:g}). {question}"
    )


def brief(numbers: list[int]) -> str:
    """Write a list, a long one by its ends."""
    if len(numbers) <= 10:
        return str(numbers)
    return f"[{', '.join(map(str, numbers[:3]))}, … {numbers[-1]}]"


def malformed_layer(layer: Challenge, evidence: Evidence) -> Verdict | None:
    """Fail an output of another form than x, or give None."""
    config = layer["config"]
    name = f"attention_layer with {config['n_heads']} heads, {config['n_kv_heads']} KV heads"
    for (x, _), out in zip(layer["cases"], evidence["outputs"], strict=True):
        if error := form_error(f"{name}, x {x.shape} {x.dtype}", out, x.shape, str(x.dtype)):
            return failed(error)
    return None


def draw_positions(seed: int) -> Challenge:
    """Draw one layer and its cases: the usual positions, all later by 10, three times as far apart;
    the first three tokens; the first token at position 0, and at position 9; any rising positions."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=1)
    x = rng.normal(size=(2, 5, challenge["config"]["d_model"])).astype(np.float32)
    usual = np.arange(5)
    cases = [(x, usual), (x, usual + 10), (x, usual * 3), (x[:, :3], usual[:3])]
    cases += [(x[:, :1], np.array([0])), (x[:, :1], np.array([9]))]
    cases.append((x, np.sort(rng.choice(np.arange(3, 64), size=5, replace=False))))
    return {"layers": [{**challenge, "cases": cases}]}


def judge_positions(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge whether distances between tokens matter, and nothing else about their positions; then
    the numbers."""
    (layer,) = challenge["layers"]
    if wrong := malformed_layer(layer, evidence):
        return wrong
    usual, later, apart, three, at_0, at_9, anywhere = [out["array"] for out in evidence["outputs"]]
    if (difference := gap(at_0, at_9)) > tolerance:
        return failed(
            "The same token, alone, gives one output at position 0 and another at position 9 "
            f"(max |Δ| {difference:.2g}). Which of query, key and value says what a token carries, "
            "and which say where it is?"
        )
    if gap(usual, apart) < tolerance:
        return failed(
            "Positions 0 1 2 3 4 and 0 3 6 9 12 give the same output. "
            "Where does your layer use `positions`?"
        )
    if (difference := gap(usual, later)) > tolerance:
        return failed(
            f"All positions later by 10, the distances as before: the output moved (max |Δ| "
            f"{difference:.2g}, tolerance {tolerance:g}). A query meets a key at the angle between "
            "them: do both know where they are?"
        )
    if (difference := gap(usual[:, :3], three)) > tolerance:
        return failed(
            "The first 3 tokens alone give other outputs than the same 3 among 5 (max |Δ| "
            f"{difference:.2g}, tolerance {tolerance:g}). "
            "What in your layer depends on how many tokens follow?"
        )
    return judge_numbers(layer, 6, anywhere, truth, tolerance) or passed(
        "Distances between tokens matter; where the text begins does not."
    )
