"""Heads, attention and the attention layer: properties that a student can reason about."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.drawing import draw_model
from course.checks.mini_gpt.probes import TOLERANCE, Array, form_error, gap, moved, tensor

# Heads


def draw_heads(seed: int) -> Challenge:
    rng = np.random.default_rng(seed)
    H, D = [(2, 3), (2, 4), (3, 2), (4, 2)][rng.integers(4)]
    return head_numbers(B=2, T=5, H=H, D=D)


def head_numbers(B: int, T: int, H: int, D: int) -> Challenge:
    """Numbers that say where they come from: 100 · row + 10 · token + column (of at most 10)."""
    row, token, column = np.ogrid[:B, :T, : H * D]
    return heads_of((100.0 * row + 10 * token + column).astype(np.float32), H)


def heads_of(x: Array, n_heads: int) -> Challenge:
    """x (B, T, C), and the same numbers as heads (B, H, T, D)."""
    return {"x": x, "heads": np.stack(np.split(x, n_heads, axis=2), axis=1), "n_heads": n_heads}


def judge_heads(challenge: Challenge, evidence: Evidence) -> Verdict:
    x, heads = challenge["x"], challenge["heads"]
    split, merge = evidence["split"], evidence["merge"]
    if error := form_error("split_heads", split, heads.shape, "float32"):
        return failed(error)
    if wrong := np.argwhere(split["array"] != heads).tolist():
        b, h, t, d = wrong[0]
        return failed(
            f"split_heads: {challenge['n_heads']} heads of {heads.shape[-1]}. In row {b}, head {h}, "
            f"token {t}, number {d} should be {heads[b, h, t, d]:g}, which is number "
            f"{h * heads.shape[-1] + d} of that token; it is {split['array'][b, h, t, d]:g}. "
            "Which axis did the cut leave next to the last?"
        )
    if error := form_error("merge_heads", merge, x.shape, "float32"):
        return failed(error)
    if wrong := np.argwhere(merge["array"] != x).tolist():
        b, t, c = wrong[0]
        return failed(
            f"merge_heads: {challenge['n_heads']} heads of {heads.shape[-1]}. In row {b}, token {t}, "
            f"number {c} should be {x[b, t, c]:g} again; it is {merge['array'][b, t, c]:g}. "
            "Which two axes must be neighbours before they merge?"
        )
    return passed("Each head holds its own slice of every token, and merging puts it back.")


# Causal attention


def draw_qkv(rng: np.random.Generator, B: int, H: int, G: int, T: int, D: int) -> tuple[Array, ...]:
    """Queries and keys sharp enough that weights differ, values of size 1."""
    shapes = ((B, H, T, D), (B, G, T, D), (B, G, T, D))
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def draw_nudged_tokens(seed: int) -> Challenge:
    """Case 0 as drawn; case 1 + j with another key and value for token j."""
    rng = np.random.default_rng(seed)
    T = 5
    q, k, v = draw_qkv(rng, B=1, H=2, G=2, T=T, D=4)
    cases = [(q, k, v)]
    for j in range(T):
        other_k, other_v = k.copy(), v.copy()
        other_k[:, :, j] += rng.normal(size=4)
        other_v[:, :, j] += rng.choice([-3, 3], size=4)
        cases.append((q, other_k, other_v))
    return {"cases": cases}


def judge_causality(challenge: Challenge, evidence: Evidence) -> Verdict:
    shape = challenge["cases"][0][0].shape
    T = shape[2]
    for out in evidence["outputs"]:
        if error := form_error("causal_attention", out, shape, "float32"):
            return failed(error)
    base, *others = [out["array"] for out in evidence["outputs"]]
    for j, other in enumerate(others):
        tokens = moved(base, other, axis=2)
        if tokens and tokens[0] < j:
            t = tokens[0]
            return failed(
                f"{T} tokens: a new key and value for token {j} moved the output of token {t} "
                f"(max |Δ| {gap(base[:, :, t], other[:, :, t]):.2g}, tolerance {TOLERANCE:g}). "
                f"Which tokens may token {t} see?"
            )
        if tokens != list(range(j, T)):
            t = next(t for t in range(j, T) if t not in tokens)
            return failed(
                f"{T} tokens: a new key and value for token {j} did not move the output of token "
                f"{t}. Which tokens may token {t} see?"
            )
    return passed("Nudge token j: outputs from j on move, and nothing left of it does.")


def draw_softmax(seed: int) -> Challenge:
    """Case 0: values that are all 1. Case 1: any values."""
    rng = np.random.default_rng(seed)
    q, k, v = draw_qkv(rng, B=2, H=2, G=2, T=4, D=8)
    return {"cases": [(q, k, np.ones_like(v)), (q, k, v)]}


def judge_softmax(challenge: Challenge, evidence: Evidence) -> Verdict:
    q, k, v = challenge["cases"][1]
    if wrong := not_an_average(evidence["outputs"][0], q.shape):
        return wrong
    # The last token sees every other, mask or no mask, so here the weights alone are judged.
    last = F.scaled_dot_product_attention(tensor(q[:, :, -1:]), tensor(k), tensor(v)).numpy()
    return judge_last_token(evidence["outputs"][1], last[:, :, 0], q.shape)


def not_an_average(ones: Evidence, shape: tuple[int, ...]) -> Verdict | None:
    """Values that are all 1 must come out as 1: weights add up to 1 for every token."""
    if error := form_error("causal_attention", ones, shape, "float32"):
        return failed(error)
    wrong = np.argwhere(np.abs(ones["array"] - 1) > TOLERANCE)
    if len(wrong):
        b, h, t, d = wrong[0].tolist()
        return failed(
            f"All values are 1, so any average of them is 1; token {t} of head {h} gives "
            f"{ones['array'][b, h, t, d]:.3g}. What do the weights of one query add up to?"
        )
    return None


def judge_last_token(out: Evidence, expected: Array, shape: tuple[int, ...]) -> Verdict:
    """Outputs of the last token, (B, H, D), against those of a trusted attention."""
    if error := form_error("causal_attention", out, shape, "float32"):
        return failed(error)
    T, D = shape[2:]
    last = out["array"][:, :, -1]
    difference = np.abs(last - expected).max(axis=-1)  # (B, H)
    if difference.max() > TOLERANCE:
        b, h = np.argwhere(difference > TOLERANCE)[0].tolist()
        return failed(
            f"Token {T - 1}, which sees all {T} tokens, row {b}, head {h}: max |Δ| "
            f"{difference[b, h]:.2g} from softmax attention (tolerance {TOLERANCE:g}); head width "
            f"D = {D}. Before the softmax, by what is q · k divided, and over which axis does the "
            "softmax run?"
        )
    return passed("Weights of each query add up to 1 and are the softmax of q · k / √D.")


def draw_groups(seed: int) -> Challenge:
    """Case 0 as drawn; then for each KV head g, another key head, and another value head."""
    rng = np.random.default_rng(seed)
    H, G = 4, 2
    q, k, v = draw_qkv(rng, B=1, H=H, G=G, T=3, D=4)
    return {"cases": with_new_kv_heads(rng, q, k, v, row=0)}


def with_new_kv_heads(
    rng: np.random.Generator, q: Array, k: Array, v: Array, row: int
) -> list[tuple[Array, ...]]:
    cases = [(q, k, v)]
    for g in range(k.shape[1]):
        other_k, other_v = k.copy(), v.copy()
        other_k[row, g] = 2 * rng.normal(size=k.shape[2:])
        other_v[row, g] += rng.choice([-3, 3], size=v.shape[2:])
        cases += [(q, other_k, v), (q, k, other_v)]
    return cases


def judge_groups(challenge: Challenge, evidence: Evidence) -> Verdict:
    q, k, _ = challenge["cases"][0]
    H, G = q.shape[1], k.shape[1]
    for out in evidence["outputs"]:
        if error := form_error(f"causal_attention with H={H}, G={G}", out, q.shape, "float32"):
            return failed(error)
    base, *others = [out["array"] for out in evidence["outputs"]]
    for i, other in enumerate(others):
        g, part = i // 2, ("keys", "values")[i % 2]
        heads, expected = moved(base, other, axis=1), [h for h in range(H) if h // (H // G) == g]
        if heads != expected:
            odd = sorted(set(heads) ^ set(expected))[0]
            return failed(
                f"{H} query heads, {G} KV heads: new {part} in KV head {g} moved the outputs of "
                f"query heads {heads}; expected {expected}. Which KV head does query head {odd} read?"
            )
    return passed("Each KV head serves its own group of neighbouring query heads, and no other.")


# The attention layer

FEATURES = ("query", "key", "value")  # columns 0, 1, 2 of x feed that matrix and no other


def draw_layer(seed: int) -> Challenge:
    """One layer. Its cases: a token alone; five tokens; then, for each of query, key and value, and
    each token j, the same five with the number changed that feeds only that part of token j."""
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


def judge_layer(challenge: Challenge, evidence: Evidence) -> Verdict:
    (layer,) = challenge["layers"]
    if wrong := malformed_layer(layer, evidence):
        return wrong
    alone, base, *others = [out["array"] for out in evidence["outputs"]]
    if (difference := gap(alone, output_of_one_token(layer))) > TOLERANCE:
        return failed(
            "A token alone can only attend to itself, so its output is its value, sent through "
            f"wo. Yours differs (max |Δ| {difference:.2g}, tolerance {TOLERANCE:g}; position 7). "
            "What happens to the value on its way out?"
        )
    T = base.shape[1]
    for i, other in enumerate(others):
        part, j = FEATURES[i // T], i % T
        tokens = moved(base, other, axis=1)
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
    config = layer["config"]
    name = f"attention_layer with {config['n_heads']} heads, {config['n_kv_heads']} KV heads"
    for (x, _), out in zip(layer["cases"], evidence["outputs"], strict=True):
        if error := form_error(name, out, x.shape, "float32"):
            return failed(error)
    return None


def output_of_one_token(layer: Challenge) -> Array:
    """wo · v of the first case, each KV head's value repeated for the query heads of its group."""
    config = layer["config"]
    wv, wo = (layer["state"][f"blocks.0.attn.{name}.weight"] for name in ("wv", "wo"))
    heads = (layer["cases"][0][0][0, 0] @ wv.T).reshape(config["n_kv_heads"], -1)
    repeated = heads.repeat(config["n_heads"] // config["n_kv_heads"], axis=0)
    return repeated.reshape(1, 1, -1) @ wo.T


def draw_positions(seed: int) -> Challenge:
    """One layer. Its cases: the usual positions, all later by 10, three times as far apart; the
    first three tokens; the first token at position 0, and at position 9."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng, n_layers=1)
    x = rng.normal(size=(2, 5, challenge["config"]["d_model"])).astype(np.float32)
    usual = np.arange(5)
    cases = [(x, usual), (x, usual + 10), (x, usual * 3), (x[:, :3], usual[:3])]
    cases += [(x[:, :1], np.array([0])), (x[:, :1], np.array([9]))]
    return {"layers": [{**challenge, "cases": cases}]}


def judge_positions(challenge: Challenge, evidence: Evidence) -> Verdict:
    (layer,) = challenge["layers"]
    if wrong := malformed_layer(layer, evidence):
        return wrong
    usual, later, apart, three, at_0, at_9 = [out["array"] for out in evidence["outputs"]]
    if (difference := gap(at_0, at_9)) > TOLERANCE:
        return failed(
            "The same token, alone, gives one output at position 0 and another at position 9 "
            f"(max |Δ| {difference:.2g}). Which of query, key and value says what a token carries, "
            "and which say where it is?"
        )
    if gap(usual, apart) < TOLERANCE:
        return failed(
            "Positions 0 1 2 3 4 and 0 3 6 9 12 give the same output. "
            "Where does your layer use `positions`?"
        )
    if (difference := gap(usual, later)) > TOLERANCE:
        return failed(
            f"All positions later by 10, the distances as before: the output moved (max |Δ| "
            f"{difference:.2g}, tolerance {TOLERANCE:g}). A query meets a key at the angle between "
            "them: do both know where they are?"
        )
    if (difference := gap(usual[:, :3], three)) > TOLERANCE:
        return failed(
            "The first 3 tokens alone give other outputs than the same 3 among 5 (max |Δ| "
            f"{difference:.2g}, tolerance {TOLERANCE:g}). "
            "What in your layer depends on how many tokens follow?"
        )
    return passed("Distances between tokens matter; where the text begins does not.")
