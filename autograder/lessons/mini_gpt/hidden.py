"""The hidden checks of lesson 01: drawn sizes, sharp weights, and a float64 oracle of their own.

The probes are those of the visible checks.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from autograder import oracle
from course.checks import mini_gpt as visible
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed, passed
from course.checks.drawing import draw_model
from course.checks.mini_gpt import attention, choosing, heads, layers
from course.checks.mini_gpt.probes import gap, moved

Array = np.ndarray


def draw_sizes(rng: np.random.Generator) -> dict[str, int]:
    """Draw B, H, G, T, D with 1 < G < H and T ≠ D."""
    H, G = [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4)][rng.integers(5)]
    T, D = (int(n) for n in rng.choice([5, 6, 7, 8, 10], size=2, replace=False))
    return {"B": 3, "H": H, "G": G, "T": T, "D": D}


# Heads


def draw_heads(seed: int) -> Challenge:
    """Draw heads with no number twice, few and many of them, and a long text."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    B, H, T, D = (size[name] for name in "BHTD")
    x = heads.draw_numbers(rng, (B, T, H * D), "float32")
    first = {"x": x, "heads": heads.draw_numbers(rng, (B, H, T, D), "float32"), "n_heads": H}
    return {"cases": [first, *heads.more_cases(rng, length=int(rng.integers(1030, 1100)))]}


def heads_by_oracle(case: dict[str, Any]) -> dict[str, Array]:
    """Cut a case's x, and merge its heads, one row of the batch at a time."""
    return {
        "split": np.stack([oracle.split(row, case["n_heads"]) for row in case["x"]]),
        "merge": np.stack([np.concatenate(list(row), axis=1) for row in case["heads"]]),
    }


# Causal attention


def draw_futures(seed: int) -> Challenge:
    """Draw case 0; case 1 + t with all that comes after token t replaced by something loud; then cases
    with a loud value for one token each, which it and all later ones must see; and equal scores."""
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
    return {"cases": cases + attention.equal_scores(rng)}


def judge_futures(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge whether no output depends on a later token, and each on all the others."""
    cases, outputs = challenge["cases"], evidence["outputs"]
    for case, out in zip(cases, outputs, strict=True):
        if error := attention.attention_error(out, case):
            return failed(error)
    T = cases[0][0].shape[2]
    base, *others = [out["array"] for out in outputs[:-2]]
    futures, pasts = others[: T - 1], others[T - 1 :]
    for t, other in enumerate(futures):
        if (difference := gap(base[:, :, : t + 1], other[:, :, : t + 1])) > tolerance:
            reach = [moved(base, past, 2, tolerance) for past in pasts]
            return failed(
                f"{T} tokens: other keys and values after token {t} moved the outputs up to token "
                f"{t} (max |Δ| {difference:.2g}, tolerance {tolerance:g}). "
                f"{attention.question_about_the_future(reach, t)}"
            )
    for t, other in enumerate(pasts):
        if (tokens := moved(base, other, 2, tolerance)) != list(range(t, T)):
            question = f"Which tokens may see token {t}?"
            if t == 0 and tokens == list(range(1, T)):
                question = (
                    "Token 0 sees only itself, so its output is its value. Of what is yours made?"
                )
            return failed(
                f"{T} tokens: another value for token {t} moved the outputs of tokens {tokens}. "
                f"{question}"
            )
    return attention.judge_equal_scores(cases[-2:], outputs[-2:], tolerance) or passed(
        "No output depends on a later token, and each on all the others."
    )


def draw_softmax(seed: int) -> Challenge:
    """Draw case 0 with values that are all 1, case 1 with sharper weights, and `more_weights`."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    q, k, v = attention.draw_qkv(rng, **{**size, "G": size["H"]})
    more = attention.more_weights(rng, T=size["T"], D=size["D"])
    return {"cases": [(q, k, np.ones_like(v)), (1.5 * q, 1.5 * k, v), *more]}


def last_by_oracle(case: attention.Case) -> Array:
    """Compute the output of the last token, (B, H, D)."""
    q, k, v = case
    rows = [
        oracle.attention_heads(*(np.float64(part[b]) for part in (q[:, :, -1:], k, v)))
        for b in range(len(q))
    ]
    return np.stack(rows)[:, :, 0]


def draw_groups(seed: int) -> Challenge:
    """Draw equal rows, with new numbers in one of them only, KV head by KV head; last, with G KV heads
    and with one, the same attention with the KV heads written out for each query head."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    row = int(rng.integers(size["B"]))
    q, k, v = (
        part.repeat(size["B"], axis=0) for part in attention.draw_qkv(rng, **{**size, "B": 1})
    )
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
    for case, out in zip(challenge["cases"][-3:], evidence["outputs"][-3:], strict=True):
        if error := attention.attention_error(out, case):
            return failed(error)
    q, k, _ = challenge["cases"][0]
    H, G = q.shape[1], k.shape[1]
    pairs = ((G, outputs[0], written_out), (1, single, single_written_out))
    for n, shared, full in pairs:
        if (difference := gap(shared["array"], full["array"])) > tolerance:
            return failed(
                f"{H} query heads: KV heads shared ({n}), and the same ones written out for "
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


def draw_layers(seed: int) -> Challenge:
    """Draw layers whose heads share 2, 4 and 1 KV heads: of three rows; of one token, and another; and
    of a long row, in float64."""
    rng = np.random.default_rng(seed)
    T, long = int(rng.integers(5, 10)), int(rng.integers(66, 76))
    sizes = ((3, T, 4, 2, "float32"), (1, 1, 4, 4, "float32"), (1, long, 2, 1, "float64"))
    drawn = [draw_one_layer(rng, *size) for size in sizes]
    (x, positions), *_ = drawn[1]["cases"]
    drawn[1]["cases"].append((-x, positions))
    return {"layers": drawn}


def draw_one_layer(
    rng: np.random.Generator, B: int, T: int, H: int, G: int, dtype: str, first: int = 0
) -> Challenge:
    """Draw a layer with one case: rows of which the second differs from the first only at the end and
    any third equals the first; at positions 0, 1, 2 …, or at any that rise, from `first` on."""
    C = int(rng.choice([24, 32, 40]))
    model = draw_model(rng, n_layers=1, d_model=C, n_heads=H, n_kv_heads=G, max_seq_len=128)
    x = rng.normal(size=(1, T, C)).repeat(B, axis=0)
    x[1:2, -1] = rng.normal(size=C)
    positions = np.arange(T)
    if first:
        positions = np.sort(rng.choice(np.arange(first, 128), size=T, replace=False))
    return {**model, "cases": [(x.astype(dtype), positions)]}


def draw_scattered_layers(seed: int) -> Challenge:
    """Draw layers whose heads share 2 KV heads and 1, at positions that are not 0, 1, 2 …"""
    rng = np.random.default_rng(seed)
    sizes = ((3, int(rng.integers(5, 10)), 4, 2, "float32"), (1, 4, 4, 1, "float32"))
    return {"layers": [draw_one_layer(rng, *size, first=3) for size in sizes]}


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


def judge_layers(
    challenge: Challenge, evidence: Evidence, truth: layers.Truth, tolerance: float
) -> Verdict:
    """Compare the outputs of every layer with the oracle's."""
    outputs = iter(evidence["outputs"])
    for layer in challenge["layers"]:
        of_layer = list(islice(outputs, len(layer["cases"])))
        if wrong := layers.malformed_layer(layer, {"outputs": of_layer}):
            return wrong
        for case, out in enumerate(of_layer):
            if wrong := layers.judge_numbers(layer, case, out["array"], truth, tolerance):
                return wrong
    return passed("The layer's outputs equal the oracle's.")


# Choosing the next token


def draw_logits(seed: int) -> Challenge:
    """Draw logits (B, V) that are mostly below 0, and more, see `more_logits`."""
    rng = np.random.default_rng(seed)
    B, V = int(rng.integers(2, 9)), int(rng.integers(10, 60))
    logits = (10 * rng.normal(size=(B, V)) - 20).astype(np.float32)
    return {"cases": [logits, *choosing.more_logits(rng)]}


def best_of_each(logits: Array) -> Array:
    """Look at every logit for the largest of each row, (B,)."""
    return np.array([max(range(len(row)), key=row.__getitem__) for row in logits.tolist()])


def draw_temperatures(seed: int) -> Challenge:
    """Draw two kinds of rows, logits far from zero: only their distances may matter."""
    rng = np.random.default_rng(seed)
    kinds = choosing.draw_kinds(rng, (30.0, -30.0))
    temperatures = [float(t) for t in (rng.uniform(0.3, 0.6), 1.0, rng.uniform(1.8, 3.0))]
    cases = [choosing.draw_case(kinds, seed, temperature=t) for t in temperatures]
    low = float(rng.uniform(0.02, 0.06))
    cases.append(choosing.draw_case(low * kinds.astype(np.float64), seed, temperature=low))
    return {"cases": cases + choosing.repeated_draws(kinds, seed)}


def draw_top_k(seed: int) -> Challenge:
    """Draw two kinds of rows, whose best tokens are in other places."""
    rng = np.random.default_rng(seed)
    base = np.linspace(2.0, -2.2, 8) + rng.uniform(-0.1, 0.1, 8)
    kinds = np.float32([rng.permutation(base) for _ in range(2)])
    kinds[1] += 10  # so that no row's edge is right for the other
    top_ks = (int(rng.integers(2, 4)), 1, int(rng.integers(4, 7)), 8)
    cases = [choosing.draw_case(kinds, seed, temperature=1.0, top_k=k) for k in top_ks]
    return {"cases": [*cases, *choosing.few_draws(rng, seed)]}


def softmax_of(scores: Array) -> Array:
    """The softmax of one row in which a dropped token has −∞; NaN where none is left."""
    with np.errstate(invalid="ignore"):
        return oracle.softmax(scores)


def probabilities(logits: list[float], settings: dict[str, Any]) -> dict[str, Array]:
    """Compute the probabilities (V,) that fair draws from one row follow, "right", and those of the
    mistakes in `choosing.QUESTIONS` that are others."""
    row, temperature = np.float64(logits), settings.get("temperature", 1.0)
    V, top_k = len(row), settings.get("top_k") or len(row)
    order = np.argsort(-row)

    def kept(n: int, dropped: float = -np.inf) -> Array:
        scores = np.full(V, dropped)
        scores[order[:n]] = row[order[:n]]
        return scores

    least = np.full(V, -np.inf)
    least[order[V - top_k :]] = row[order[V - top_k :]]
    right = softmax_of(kept(top_k) / temperature)
    mistakes = {
        "temperature unused": softmax_of(kept(top_k)),
        "temperature multiplied": softmax_of(kept(top_k) * temperature),
        "all alike": (right > 0) / top_k,
        "top_k unused": softmax_of(row / temperature),
        "one more": softmax_of(kept(min(top_k + 1, V)) / temperature),
        "one less": softmax_of(kept(max(top_k - 1, 1)) / temperature),
        "the least likely": softmax_of(least / temperature),
        "zero for the others": softmax_of(kept(top_k, dropped=0.0) / temperature),
    }
    if temperature > 0.1:  # below, what bounds the temperature gives nearly the same
        mistakes["softmax twice"] = softmax_of(softmax_of(kept(top_k)) / temperature)
    others = {name: p for name, p in mistakes.items() if 0.5 * np.abs(p - right).sum() > 0.02}
    return {"right": right, **others}


def draw_refusals(seed: int) -> Challenge:
    """Draw logits, and calls that must be refused."""
    rng = np.random.default_rng(seed)
    V = int(rng.integers(5, 12))
    logits = rng.normal(size=(3, V)).astype(np.float32)
    temperatures = (0.0, -float(rng.uniform(0.1, 2)))
    top_ks = (0, -int(rng.integers(1, 5)), V + int(rng.integers(1, 5)))
    return {"cases": choosing.refusal_cases(logits, temperatures, top_ks)}


CHECKS = by_name(
    visible.heads_split_and_merge.hidden(challenge=draw_heads, truth=heads_by_oracle),
    visible.attention_sees_no_future.hidden(challenge=draw_futures, verdict=judge_futures),
    visible.attention_weighs_by_softmax.hidden(challenge=draw_softmax, truth=last_by_oracle),
    visible.query_heads_share_kv_heads.hidden(challenge=draw_groups, verdict=judge_groups),
    visible.layer_joins_its_parts.hidden(
        challenge=draw_layers, verdict=judge_layers, truth=layer_by_oracle
    ),
    visible.layer_obeys_positions.hidden(
        challenge=draw_scattered_layers, verdict=judge_layers, truth=layer_by_oracle
    ),
    visible.greedy_takes_the_likeliest.hidden(challenge=draw_logits, truth=best_of_each),
    visible.sample_follows_temperature.hidden(challenge=draw_temperatures, truth=probabilities),
    visible.sample_stays_in_top_k.hidden(challenge=draw_top_k, truth=probabilities),
    visible.bad_arguments_are_refused.hidden(challenge=draw_refusals),
)
