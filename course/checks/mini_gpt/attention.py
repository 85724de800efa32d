"""Challenges and verdicts for heads and for attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.nn.functional as F

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.mini_gpt.probes import Array, form_error, gap, moved, tensor

# Heads


def draw_heads(seed: int) -> Challenge:
    """Draw the sizes of heads whose numbers say where they come from."""
    rng = np.random.default_rng(seed)
    H, D = [(2, 3), (2, 4), (3, 2), (4, 2)][rng.integers(4)]
    return head_numbers(B=2, T=5, H=H, D=D)


def head_numbers(B: int, T: int, H: int, D: int) -> Challenge:
    """Number each place: 100 · row + 10 · token + column (of at most 10)."""
    row, token, column = np.ogrid[:B, :T, : H * D]
    return heads_of((100.0 * row + 10 * token + column).astype(np.float32), H)


def heads_of(x: Array, n_heads: int) -> Challenge:
    """Cut x (B, T, C) into heads (B, H, T, D), and give both."""
    return {"x": x, "heads": np.stack(np.split(x, n_heads, axis=2), axis=1), "n_heads": n_heads}


def judge_heads(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge the split, and then the merge, number by number."""
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
    """Draw queries and keys sharp enough that weights differ, and values of size 1."""
    shapes = ((B, H, T, D), (B, G, T, D), (B, G, T, D))
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def draw_nudged_tokens(seed: int) -> Challenge:
    """Draw case 0, and case 1 + j with another key and value for token j."""
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


def judge_causality(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge which outputs a nudged token moved: those from it on, and no others."""
    shape = challenge["cases"][0][0].shape
    T = shape[2]
    for out in evidence["outputs"]:
        if error := form_error("causal_attention", out, shape, "float32"):
            return failed(error)
    base, *others = [out["array"] for out in evidence["outputs"]]
    for j, other in enumerate(others):
        tokens = moved(base, other, 2, tolerance)
        if tokens and tokens[0] < j:
            t = tokens[0]
            return failed(
                f"{T} tokens: a new key and value for token {j} moved the output of token {t} "
                f"(max |Δ| {gap(base[:, :, t], other[:, :, t]):.2g}, tolerance {tolerance:g}). "
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
    """Draw case 0 with values that are all 1, and case 1 with any values."""
    rng = np.random.default_rng(seed)
    q, k, v = draw_qkv(rng, B=2, H=2, G=2, T=4, D=8)
    return {"cases": [(q, k, np.ones_like(v)), (q, k, v)]}


def last_by_sdpa(challenge: Challenge) -> Array:
    """Compute case 1's output of the last token, (B, H, D), by PyTorch's own attention.

    The last token sees every other, mask or no mask, so here the weights alone are judged.
    """
    q, k, v = challenge["cases"][1]
    last = F.scaled_dot_product_attention(tensor(q[:, :, -1:]), tensor(k), tensor(v))
    return last[:, :, 0].numpy()


def judge_softmax(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge], Array],
    tolerance: float,
) -> Verdict:
    """Judge whether weights add up to 1, and then whether they are the softmax of q · k / √D."""
    ones, out = evidence["outputs"]
    shape = challenge["cases"][0][0].shape
    T, D = shape[2:]
    if error := form_error("causal_attention", ones, shape, "float32"):
        return failed(error)
    wrong = np.argwhere(np.abs(ones["array"] - 1) > tolerance)
    if len(wrong):
        b, h, t, d = wrong[0].tolist()
        return failed(
            f"All values are 1, so any average of them is 1; token {t} of head {h} gives "
            f"{ones['array'][b, h, t, d]:.3g}. What do the weights of one query add up to?"
        )
    if error := form_error("causal_attention", out, shape, "float32"):
        return failed(error)
    difference = np.abs(out["array"][:, :, -1] - truth(challenge)).max(axis=-1)  # (B, H)
    if difference.max() > tolerance:
        b, h = np.argwhere(difference > tolerance)[0].tolist()
        return failed(
            f"Token {T - 1}, which sees all {T} tokens, row {b}, head {h}: max |Δ| "
            f"{difference[b, h]:.2g} from softmax attention (tolerance {tolerance:g}); head width "
            f"D = {D}. Before the softmax, by what is q · k divided, and over which axis does the "
            "softmax run?"
        )
    return passed("Weights of each query add up to 1 and are the softmax of q · k / √D.")


def draw_groups(seed: int) -> Challenge:
    """Draw case 0, and for each KV head g one with other keys, and one with other values."""
    rng = np.random.default_rng(seed)
    H, G = 4, 2
    q, k, v = draw_qkv(rng, B=1, H=H, G=G, T=3, D=4)
    return {"cases": with_new_kv_heads(rng, q, k, v, row=0)}


def with_new_kv_heads(
    rng: np.random.Generator, q: Array, k: Array, v: Array, row: int
) -> list[tuple[Array, ...]]:
    """Make the cases of `draw_groups`; in batch row `row` alone the new heads are new."""
    cases = [(q, k, v)]
    for g in range(k.shape[1]):
        other_k, other_v = k.copy(), v.copy()
        other_k[row, g] = 2 * rng.normal(size=k.shape[2:])
        other_v[row, g] += rng.choice([-3, 3], size=v.shape[2:])
        cases += [(q, other_k, v), (q, k, other_v)]
    return cases


def judge_groups(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Judge which query heads each new KV head moved: those of its group, and no others."""
    q, k, _ = challenge["cases"][0]
    H, G = q.shape[1], k.shape[1]
    for out in evidence["outputs"]:
        if error := form_error(f"causal_attention with H={H}, G={G}", out, q.shape, "float32"):
            return failed(error)
    base, *others = [out["array"] for out in evidence["outputs"]]
    for i, other in enumerate(others):
        g, part = i // 2, ("keys", "values")[i % 2]
        heads, expected = (
            moved(base, other, 1, tolerance),
            [h for h in range(H) if h // (H // G) == g],
        )
        if heads != expected:
            odd = sorted(set(heads) ^ set(expected))[0]
            return failed(
                f"{H} query heads, {G} KV heads: new {part} in KV head {g} moved the outputs of "
                f"query heads {heads}; expected {expected}. Which KV head does query head {odd} read?"
            )
    return passed("Each KV head serves its own group of neighbouring query heads, and no other.")
