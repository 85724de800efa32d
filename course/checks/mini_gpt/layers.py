"""Challenges and verdicts for the attention layer."""

from __future__ import annotations

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.drawing import draw_model
from course.checks.mini_gpt.probes import Array, form_error, gap, moved

FEATURES = ("query", "key", "value")  # columns 0, 1, 2 of x feed that matrix and no other


def draw_layer(seed: int) -> Challenge:
    """Draw one layer and its cases: a token alone; five tokens; then, for each of query, key and value,
    and each token j, the same five with the number changed that feeds only that part of token j."""
    rng = np.random.default_rng(seed)
    T = 5
    challenge = draw_model(rng, n_layers=1)
    for column, part in enumerate(("wq", "wk", "wv")):
        for other in {"wq", "wk", "wv"} - {part}:
            challenge["state"][f"blocks.0.attn.{other}.weight"][:, column] = 0
    x = rng.normal(size=(1, T, challenge["config"]["d_model"])).astype(np.float32)
    cases = [(x[:, :1], np.array([7])), (x, np.arange(T))]
    for column in range(len(FEATURES)):
        for j in range(T):
            other = x.copy()
            other[:, j, column] += 3
            cases.append((other, np.arange(T)))
    return {"layers": [{**challenge, "cases": cases}]}


def judge_layer(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge what a token alone gives, and then which tokens use whose query, key and value."""
    (layer,) = challenge["layers"]
    if wrong := malformed_layer(layer, evidence):
        return wrong
    alone, base, *others = [out["array"] for out in evidence["outputs"]]
    if (difference := gap(alone, output_of_one_token(layer))) > tolerance:
        return failed(
            "A token alone can only attend to itself, so its output is its value, sent through "
            f"wo. Yours differs (max |Δ| {difference:.2g}, tolerance {tolerance:g}; position 7). "
            "What happens to the value on its way out?"
        )
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
    return passed("A query serves its own token; a key and a value serve every later one too.")


def malformed_layer(layer: Challenge, evidence: Evidence) -> Verdict | None:
    """Fail an output of another form than x, or give None."""
    config = layer["config"]
    name = f"attention_layer with {config['n_heads']} heads, {config['n_kv_heads']} KV heads"
    for (x, _), out in zip(layer["cases"], evidence["outputs"], strict=True):
        if error := form_error(name, out, x.shape, "float32"):
            return failed(error)
    return None


def output_of_one_token(layer: Challenge) -> Array:
    """Compute wo · v of the first case, each KV head's value repeated for its group's query heads."""
    config = layer["config"]
    wv, wo = (layer["state"][f"blocks.0.attn.{name}.weight"] for name in ("wv", "wo"))
    heads = (layer["cases"][0][0][0, 0] @ wv.T).reshape(config["n_kv_heads"], -1)
    repeated = heads.repeat(config["n_heads"] // config["n_kv_heads"], axis=0)
    return repeated.reshape(1, 1, -1) @ wo.T


def draw_positions(seed: int) -> Challenge:
    """Draw one layer and its cases: the usual positions, all later by 10, three times as far apart;
    the first three tokens; the first token at position 0, and at position 9."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=1)
    x = rng.normal(size=(2, 5, challenge["config"]["d_model"])).astype(np.float32)
    usual = np.arange(5)
    cases = [(x, usual), (x, usual + 10), (x, usual * 3), (x[:, :3], usual[:3])]
    cases += [(x[:, :1], np.array([0])), (x[:, :1], np.array([9]))]
    return {"layers": [{**challenge, "cases": cases}]}


def judge_positions(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge whether distances between tokens matter, and nothing else about their positions."""
    (layer,) = challenge["layers"]
    if wrong := malformed_layer(layer, evidence):
        return wrong
    usual, later, apart, three, at_0, at_9 = [out["array"] for out in evidence["outputs"]]
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
    return passed("Distances between tokens matter; where the text begins does not.")
