"""Check the mask, the cached layer and the cached forward pass against the model without a cache."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_difference, outcome, question_about, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_split, draw_tokens
from course.checks.kv_cache.container import new_cache


def draw_mask_sizes(seed: int) -> Challenge:
    """Draw pairs (T, S): a whole prompt, a single token, and chunks."""
    rng = np.random.default_rng(seed)
    drawn = [(int(t), int(t + rng.integers(1, 9))) for t in rng.integers(2, 6, 4)]
    return {"sizes": [(4, 4), (1, 5), *drawn]}


def probe_mask(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Make a mask of each size."""
    masks = [student.causal_mask(T, S) for T, S in challenge["sizes"]]
    return {"masks": [np.asarray(m) for m in masks], "dtypes": [str(m.dtype) for m in masks]}


def mask_form(challenge: Challenge) -> Evidence:
    n = len(challenge["sizes"])
    return {"masks": [np.ndarray] * n, "dtypes": [str] * n}


def judge_mask(challenge: Challenge, evidence: Evidence) -> Verdict:
    for (T, S), mask, dtype in zip(
        challenge["sizes"], evidence["masks"], evidence["dtypes"], strict=True
    ):
        case = f"causal_mask({T}, {S})"
        if mask.shape != (T, S):
            return failed(
                f"{case} has shape {mask.shape}, wanted is ({T}, {S}). Which side counts new tokens?"
            )
        if dtype != "torch.bool":
            return failed(f"{case} is {dtype}; wanted is torch.bool, True where a token may look.")
        for t in range(T):
            row = "".join("x" if seen else "." for seen in mask[t])
            own = S - T + t
            if not mask[t, own]:
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) leaves out itself. Where does the last new token stand?"
                )
            if mask[t, own + 1 :].any():
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) shows it a later token. May it look ahead?"
                )
            if not mask[t, :own].all():
                return failed(
                    f"{case}, new token {t}, is token {own} of the {S} visible ones, and its row "
                    f"{row} (x: may look) hides an earlier token. What is the cache for?"
                )
    return passed("The mask is T by S, and its triangle sits at the right edge.")


mask_is_rectangular = Check(
    "mask_is_rectangular",
    ("causal_mask",),
    draw_mask_sizes,
    probe_mask,
    judge_mask,
    evidence=mask_form,
)


def draw_layer(seed: int) -> Challenge:
    """Draw, for 4, 2 and 1 KV heads, a model and inputs (3, 8, C) of one of its layers in chunks."""
    rng = np.random.default_rng(seed)
    cases = []
    for n_kv_heads in (4, 2, 1):
        case = draw_model(rng, n_kv_heads=n_kv_heads, n_layers=2)
        x = rng.normal(size=(3, 8, case["config"]["d_model"])).astype(np.float32)
        cases.append({**case, "x": x, "split": draw_split(rng, 8), "layer": int(rng.integers(2))})
    return {"cases": cases}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Run each case's layer, chunk after chunk."""
    return {"out": [_run_layer(student, case) for case in challenge["cases"]]}


def _run_layer(student: SimpleNamespace, case: Challenge) -> list[np.ndarray]:
    attn, x = build_model(case).blocks[case["layer"]].attn, torch.from_numpy(case["x"].copy())
    cache = new_cache(student, case, 8)
    outputs, done = [], 0
    for n in case["split"]:
        positions = torch.arange(done, done + n)
        chunk = x[:, done : done + n]
        out = student.attention_layer_cached(attn, chunk, positions, cache, case["layer"])
        outputs.append(out.numpy())
        cache.advance(n)
        done += n
    return outputs


def uncached_layer(case: Challenge) -> np.ndarray:
    """Compute the layer's output over all tokens at once, (B, T, C), by lesson 01's layer."""
    model, x = build_model(case), torch.from_numpy(case["x"])
    attn = model.blocks[case["layer"]].attn
    return model.attention_layer(attn, x, torch.arange(x.shape[1])).numpy()


def layer_form(challenge: Challenge) -> Evidence:
    return {"out": [[np.ndarray] * len(case["split"]) for case in challenge["cases"]]}


def judge_layer(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge], np.ndarray],
    tolerance: float,
) -> Verdict:
    agree = []
    for case, out in zip(challenge["cases"], evidence["out"], strict=True):
        G = case["config"]["n_kv_heads"]
        wrong = first_difference(out, truth(case), case["split"], tolerance)
        if wrong and agree:
            return failed(
                f"4 query heads on {G} KV heads. {wrong} With {agree[-1]} KV heads all agrees. "
                f"Which KV head does each query head read?"
            )
        if wrong:
            return failed(f"{wrong} {question_about(case['split'], wrong)}")
        agree.append(G)
    return passed(f"4 query heads on {agree} KV heads: every chunk equals the uncached layer.")


layer_equals_uncached = Check(
    "layer_equals_uncached",
    ("attention_layer_cached", "KVCache"),
    draw_layer,
    probe_layer,
    judge_layer,
    evidence=layer_form,
    truth=uncached_layer,
    tolerance=TOLERANCE,
)


def draw_text(seed: int) -> Challenge:
    """Draw a model, a batch of 3 texts of 10 tokens, and four ways to cut them up."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    tokens = draw_tokens(rng, 3, 10, challenge["config"]["vocab_size"])
    drawn = draw_split(rng, 10)
    return {**challenge, "tokens": tokens, "splits": [[10], [4, *[1] * 6], [1, 3, 2, 4], drawn]}


def run_split(
    student: SimpleNamespace, model: Any, tokens: np.ndarray, split: list[int], cache: Any
) -> list[np.ndarray]:
    """Feed tokens chunk by chunk; the logits of each, (B, T_i, V)."""
    chunks = torch.from_numpy(tokens.copy()).split(split, dim=1)
    return [student.forward_cached(model, chunk, cache).numpy() for chunk in chunks]


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the text in each split to a cache of just its length, and then one token more."""
    model, tokens = build_model(challenge), challenge["tokens"]
    logits, lengths = [], []
    for split in challenge["splits"]:
        cache = new_cache(student, challenge, 10)
        logits.append(run_split(student, model, tokens, split, cache))
        lengths.append(len(cache))
    full = outcome(
        lambda: student.forward_cached(model, torch.from_numpy(tokens[:, :1].copy()), cache)
    )
    return {"logits": logits, "lengths": lengths, "full": full, "full_length": len(cache)}


def splits_form(challenge: Challenge) -> Evidence:
    splits = challenge["splits"]
    return {
        "logits": [[np.ndarray] * len(split) for split in splits],
        "lengths": [int] * len(splits),
        "full": str,
        "full_length": int,
    }


def judge_splits(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every chunk of every split with the uncached ones."""
    wanted = truth(challenge, challenge["tokens"])
    agree = []
    for split, chunks, length in zip(
        challenge["splits"], evidence["logits"], evidence["lengths"], strict=True
    ):
        wrong = first_difference(chunks, wanted, split, tolerance)
        if wrong:
            so_far = f" Chunks of {agree[-1]} agree." if agree else ""
            return failed(f"{wrong}{so_far} {question_about(split, wrong)}")
        if length != 10:
            return failed(
                f"Chunks of {split}: 10 tokens were fed and len(cache) is {length}. "
                f"How often is advance called in one forward pass?"
            )
        agree.append(split)
    if evidence["full"] != "CacheFull" or evidence["full_length"] != 10:
        return failed(
            f"A cache of 10 places holds 10 tokens; feeding one more: {evidence['full']}, and "
            f"then it holds {evidence['full_length']}. Wanted is CacheFull, and 10 still."
        )
    apart = max(np.abs(np.concatenate(c, axis=1) - wanted).max() for c in evidence["logits"])
    return passed(
        f"Every logit equals the uncached one, for chunks of {agree} (max |Δ| {apart:.0e}, "
        f"tolerance {tolerance:g})."
    )


every_split_equals_uncached = Check(
    "every_split_equals_uncached",
    ("forward_cached", "KVCache"),
    draw_text,
    probe_splits,
    judge_splits,
    evidence=splits_form,
    truth=uncached,
    tolerance=TOLERANCE,
)
