"""The hidden checks of lesson 01: drawn sizes, sharp weights, and a float64 oracle of their own.

The probes are those of the visible checks.
"""

from __future__ import annotations

import numpy as np

from autograder import oracle
from course.checks import mini_gpt as visible
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed, passed
from course.checks.drawing import draw_model
from course.checks.mini_gpt import attention, choosing, layers
from course.checks.mini_gpt.probes import form_error, gap, moved

Array = np.ndarray


def draw_sizes(rng: np.random.Generator) -> dict[str, int]:
    """Draw B, H, G, T, D with 1 < G < H and T ≠ D."""
    H, G = [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4)][rng.integers(5)]
    T, D = (int(n) for n in rng.choice([5, 6, 7, 8, 10], size=2, replace=False))
    return {"B": 3, "H": H, "G": G, "T": T, "D": D}


# Heads


def draw_heads(seed: int) -> Challenge:
    """Draw x with no number twice."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    shape = (size["B"], size["T"], size["H"] * size["D"])
    x = rng.permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    return attention.heads_of(x, size["H"])


# Causal attention


def draw_futures(seed: int) -> Challenge:
    """Draw case 0; case 1 + t with all that comes after token t replaced by something loud; and then
    cases with a loud value for one token each, which it and all later ones must see."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    q, k, v = attention.draw_qkv(rng, **{**size, "G": size["H"]})
    cases = [(q, k, v)]
    for t in range(size["T"] - 1):
        other_k, other_v = k.copy(), v.copy()
        other_k[:, :, t + 1 :] = 5 * rng.normal(size=other_k[:, :, t + 1 :].shape)
        other_v[:, :, t + 1 :] = 100 * rng.normal(size=other_v[:, :, t + 1 :].shape)
        cases.append((q, other_k, other_v))
    for t in range(size["T"]):
        other_v = v.copy()
        other_v[:, :, t] += 100
        cases.append((q, k, other_v))
    return {"cases": cases}


def judge_futures(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge whether no output depends on a later token, and each on all the others."""
    shape = challenge["cases"][0][0].shape
    T = shape[2]
    for out in evidence["outputs"]:
        if error := form_error("causal_attention", out, shape, "float32"):
            return failed(error)
    base, *others = [out["array"] for out in evidence["outputs"]]
    futures, pasts = others[: T - 1], others[T - 1 :]
    for t, other in enumerate(futures):
        if (difference := gap(base[:, :, : t + 1], other[:, :, : t + 1])) > tolerance:
            return failed(
                f"{T} tokens: other keys and values after token {t} moved the outputs up to token "
                f"{t} (max |Δ| {difference:.2g}, tolerance {tolerance:g}). "
                f"Which tokens may token {t} see?"
            )
    for t, other in enumerate(pasts):
        if (tokens := moved(base, other, 2, tolerance)) != list(range(t, T)):
            return failed(
                f"{T} tokens: another value for token {t} moved the outputs of tokens {tokens}. "
                f"Which tokens may see token {t}?"
            )
    return passed("No output depends on a later token, and each on all the others.")


def draw_softmax(seed: int) -> Challenge:
    """Draw case 0 with values that are all 1, and case 1 with sharper weights."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    q, k, v = attention.draw_qkv(rng, **{**size, "G": size["H"]})
    return {"cases": [(q, k, np.ones_like(v)), (1.5 * q, 1.5 * k, v)]}


def last_by_oracle(challenge: Challenge) -> Array:
    """Compute case 1's output of the last token, (B, H, D)."""
    q, k, v = challenge["cases"][1]
    rows = [
        oracle.attention_heads(*(np.float64(part[b]) for part in (q[:, :, -1:], k, v)))
        for b in range(len(q))
    ]
    return np.stack(rows)[:, :, 0]


def draw_groups(seed: int) -> Challenge:
    """Draw new numbers in one batch row only, KV head by KV head; last, with G KV heads and with one,
    the same attention with the KV heads written out for each query head."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    row = int(rng.integers(size["B"]))
    q, k, v = attention.draw_qkv(rng, **size)
    owner = np.arange(size["H"]) // (size["H"] // size["G"])
    one = np.zeros(size["H"], int)
    cases = [
        *attention.with_new_kv_heads(rng, q, k, v, row),
        (q, k[:, owner], v[:, owner]),
        (q, k[:, :1], v[:, :1]),
        (q, k[:, one], v[:, one]),
    ]
    return {"cases": cases, "row": row}


def judge_groups(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge which query heads share, that sharing changes nothing else, and that rows stay apart."""
    *outputs, written_out, single, single_written_out = evidence["outputs"]
    verdict = attention.judge_groups(challenge, {"outputs": outputs}, tolerance)
    if verdict.score < 1:
        return verdict
    q, k, _ = challenge["cases"][0]
    H, G = q.shape[1], k.shape[1]
    pairs = ((G, outputs[0], written_out), (1, single, single_written_out))
    for heads, shared, full in pairs:
        for n, out in ((heads, shared), (H, full)):
            if error := form_error(f"causal_attention with H={H}, G={n}", out, q.shape, "float32"):
                return failed(error)
        if (difference := gap(shared["array"], full["array"])) > tolerance:
            return failed(
                f"{H} query heads: KV heads shared ({heads}), and the same ones written out for "
                f"each query head, give different outputs (max |Δ| {difference:.2g}, tolerance "
                f"{tolerance:g}). What else changes when heads share?"
            )
    base = outputs[0]["array"]
    rows = sorted({b for out in outputs[1:] for b in moved(base, out["array"], 0, tolerance)})
    if rows != [challenge["row"]]:
        return failed(
            f"New numbers in batch row {challenge['row']} moved rows {rows}. "
            "Which axis holds the batch?"
        )
    return verdict


# The attention layer


def draw_layers(seed: int, scattered: bool = False) -> Challenge:
    """Draw layers of 4 heads that share 2, 4 and 1 KV heads; positions 0, 1, 2 … or any that rise."""
    rng = np.random.default_rng(seed)
    drawn = []
    for n_kv_heads in (2, 4, 1):
        T, C = int(rng.integers(5, 10)), int(rng.choice([24, 32, 40]))
        model = draw_model(rng, n_layers=1, d_model=C, n_kv_heads=n_kv_heads)
        x = rng.normal(size=(3, T, C)).astype(np.float32)
        positions = np.arange(T)
        if scattered:
            positions = np.sort(rng.choice(np.arange(3, 64), size=T, replace=False))
        drawn.append({**model, "cases": [(x, positions)]})
    return {"layers": drawn}


def draw_scattered_layers(seed: int) -> Challenge:
    return draw_layers(seed, scattered=True)


def layer_by_oracle(layer: Challenge) -> Array:
    """Compute the output (B, T, C) of a layer's only case."""
    x, positions = layer["cases"][0]
    rows = [
        oracle.attention_layer(
            layer["state"], "blocks.0.attn.", layer["config"], row, np.float64(positions)
        )[0]
        for row in np.float64(x)
    ]
    return np.stack(rows)


def judge_layers(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Compare the outputs of every layer with the oracle's."""
    for layer, out in zip(challenge["layers"], evidence["outputs"], strict=True):
        if wrong := layers.malformed_layer(layer, {"outputs": [out]}):
            return wrong
        if wrong := judge_layer(layer, out["array"], tolerance):
            return wrong
    return passed("The layer's outputs equal the oracle's.")


def judge_layer(layer: Challenge, output: Array, tolerance: float) -> Verdict | None:
    """Fail the first token whose output differs from the oracle's, or give None."""
    positions, config = layer["cases"][0][1], layer["config"]
    difference = np.abs(output - layer_by_oracle(layer)).max(axis=-1)  # (B, T)
    if difference.max() <= tolerance:
        return None
    t, b = np.argwhere((difference > tolerance).T)[0].tolist()
    question = (
        "A token alone attends to itself: what happens to its value on the way in and out?"
        if t == 0
        else f"Token 0 agrees. Which parts of token {t}'s output come from a query that meets a "
        "key, and what is done to both before they meet?"
    )
    return failed(
        f"{config['n_heads']} heads, {config['n_kv_heads']} KV heads, positions "
        f"{positions.tolist()}: token {t} of row {b} is the first that differs (max |Δ| "
        f"{difference[b, t]:.2g}, tolerance {tolerance:g}). {question}"
    )


# Choosing the next token


def draw_logits(seed: int) -> Challenge:
    """Draw logits (B, V) that are mostly below 0."""
    rng = np.random.default_rng(seed)
    B, V = int(rng.integers(2, 9)), int(rng.integers(10, 60))
    return {"logits": (10 * rng.normal(size=(B, V)) - 20).astype(np.float32)}


def draw_temperatures(seed: int) -> Challenge:
    """Draw three kinds of rows in turn, logits far from zero: only their distances may matter."""
    rng = np.random.default_rng(seed)
    base = np.array([2.5, 1.5, 0.5, 0.0, -0.5, -1.5]) + rng.uniform(-0.1, 0.1, 6)
    kinds = np.stack([rng.permutation(base) + offset for offset in (0, 30, -30)])
    logits = np.tile(kinds, (choosing.DRAWS, 1))
    temperatures = [float(t) for t in (rng.uniform(0.3, 0.6), 1.0, rng.uniform(1.8, 3.0))]
    cases = [choosing.draw_case(logits, seed, temperature=t) for t in temperatures]
    return {"kinds": kinds, "cases": cases + choosing.repeated_draws(logits[:60], seed)}


def draw_top_k(seed: int) -> Challenge:
    """Draw three kinds of rows, whose best tokens are in other places."""
    rng = np.random.default_rng(seed)
    base = np.arange(3.0, -5.0, -1.0) + rng.uniform(-0.1, 0.1, 8)
    kinds = np.stack([rng.permutation(base) for _ in range(3)])
    logits = np.tile(kinds, (choosing.DRAWS, 1))
    top_ks = (1, int(rng.integers(2, 4)), int(rng.integers(4, 7)), 8)
    cases = [choosing.draw_case(logits, seed, temperature=1.0, top_k=k) for k in top_ks]
    return {"kinds": kinds, "cases": cases}


def draw_refusals(seed: int) -> Challenge:
    """Draw logits, and calls that must be refused."""
    rng = np.random.default_rng(seed)
    V = int(rng.integers(5, 12))
    logits = rng.normal(size=(3, V)).astype(np.float32)
    temperatures = (0.0, -float(rng.uniform(0.1, 2)))
    top_ks = (0, -int(rng.integers(1, 5)), V + int(rng.integers(1, 5)))
    return {"cases": choosing.refusal_cases(logits, temperatures, top_ks)}


CHECKS = by_name(
    visible.heads_split_and_merge.hidden(challenge=draw_heads),
    visible.attention_sees_no_future.hidden(challenge=draw_futures, verdict=judge_futures),
    visible.attention_weighs_by_softmax.hidden(challenge=draw_softmax, truth=last_by_oracle),
    visible.query_heads_share_kv_heads.hidden(challenge=draw_groups, verdict=judge_groups),
    visible.layer_joins_its_parts.hidden(challenge=draw_layers, verdict=judge_layers),
    visible.layer_obeys_positions.hidden(challenge=draw_scattered_layers, verdict=judge_layers),
    visible.greedy_takes_the_likeliest.hidden(challenge=draw_logits),
    visible.sample_follows_temperature.hidden(challenge=draw_temperatures),
    visible.sample_stays_in_top_k.hidden(challenge=draw_top_k),
    visible.bad_arguments_are_refused.hidden(challenge=draw_refusals),
)
