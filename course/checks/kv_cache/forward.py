"""The mask, the cached layer and the cached forward pass: equal to the model without a cache."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_difference, outcome, question_about, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_split, draw_tokens
from course.checks.kv_cache.container import feed, new_cache


def draw_mask_sizes(seed: int) -> Challenge:
    rng = np.random.default_rng(seed)
    drawn = [(int(t), int(t + rng.integers(1, 9))) for t in rng.integers(2, 6, 4)]
    return {"sizes": [(4, 4), (1, 5), *drawn]}


def probe_mask(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    masks = [student.causal_mask(T, S) for T, S in challenge["sizes"]]
    return {"masks": [np.asarray(m) for m in masks], "dtypes": [str(m.dtype) for m in masks]}


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
    "mask_is_rectangular", ("causal_mask",), draw_mask_sizes, probe_mask, judge_mask
)


def draw_layer(seed: int) -> Challenge:
    """For 4, 2 and 1 KV heads: a model, and inputs (3, 8, C) of one of its layers in chunks."""
    rng = np.random.default_rng(seed)
    cases = []
    for n_kv_heads in (4, 2, 1):
        case = draw_model(rng, n_kv_heads=n_kv_heads, n_layers=2)
        x = rng.normal(size=(3, 8, case["config"]["d_model"])).astype(np.float32)
        cases.append({**case, "x": x, "split": draw_split(rng, 8), "layer": int(rng.integers(2))})
    return {"cases": cases}


def probe_layer(student: SimpleNamespace, challenge: Challenge) -> Evidence:
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
    """The layer's output over all tokens at once, (B, T, C), by lesson 01's layer."""
    model, x = build_model(case), torch.from_numpy(case["x"])
    attn = model.blocks[case["layer"]].attn
    return model.attention_layer(attn, x, torch.arange(x.shape[1])).numpy()


def layer_verdict(truth: Callable[[Challenge], np.ndarray]) -> Callable[..., Verdict]:
    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        agree = []
        for case, out in zip(challenge["cases"], evidence["out"], strict=True):
            G = case["config"]["n_kv_heads"]
            wrong = first_difference(out, truth(case), case["split"])
            if wrong and agree:
                return failed(
                    f"4 query heads on {G} KV heads. {wrong} With {agree[-1]} KV heads all agrees. "
                    f"Which KV head does each query head read?"
                )
            if wrong:
                return failed(f"{wrong} {question_about(case['split'], wrong)}")
            agree.append(G)
        return passed(f"4 query heads on {agree} KV heads: every chunk equals the uncached layer.")

    return judge


layer_equals_uncached = Check(
    "layer_equals_uncached",
    ("attention_layer_cached", "KVCache"),
    draw_layer,
    probe_layer,
    layer_verdict(uncached_layer),
)


def draw_text(seed: int) -> Challenge:
    """A model, a batch of 3 texts of 10 tokens, and three ways to cut them up."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    tokens = draw_tokens(rng, 3, 10, challenge["config"]["vocab_size"])
    drawn = draw_split(rng, 10)
    return {**challenge, "tokens": tokens, "splits": [[10], [4, *[1] * 6], [1, 3, 2, 4], drawn]}


def run_split(
    student: SimpleNamespace, model: Any, tokens: np.ndarray, split: list[int], cache: Any
) -> list[np.ndarray]:
    """Logits of each chunk, (B, T_i, V)."""
    chunks = torch.from_numpy(tokens.copy()).split(split, dim=1)
    return [student.forward_cached(model, chunk, cache).numpy() for chunk in chunks]


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
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


def splits_verdict(truth: Truth) -> Callable[..., Verdict]:
    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        wanted = truth(challenge, challenge["tokens"])
        agree = []
        for split, chunks, length in zip(
            challenge["splits"], evidence["logits"], evidence["lengths"], strict=True
        ):
            wrong = first_difference(chunks, wanted, split)
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
            f"tolerance {TOLERANCE:g})."
        )

    return judge


every_split_equals_uncached = Check(
    "every_split_equals_uncached",
    ("forward_cached", "KVCache"),
    draw_text,
    probe_splits,
    splits_verdict(uncached),
)


def draw_poison(seed: int) -> Challenge:
    """A model, random keys and values of 5 tokens that never were, and 3 tokens that follow."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    poison = rng.normal(size=(2, 3, 3, 2, 5, 6)).astype(np.float32)
    tokens = draw_tokens(rng, 3, 3, challenge["config"]["vocab_size"])
    return {**challenge, "poison": poison, "tokens": tokens, "order": rng.permutation(5).tolist()}


def probe_poison(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, poison = build_model(challenge), challenge["poison"]
    shuffled = poison[..., challenge["order"], :]
    evidence = {}
    for name, past in {"poisoned": poison, "shuffled": shuffled, "other": -poison}.items():
        cache = new_cache(student, challenge, 8)
        feed(cache, past)
        evidence[name] = run_split(student, model, challenge["tokens"], [2, 1], cache)
    return evidence


def judge_poison_by_properties(challenge: Challenge, evidence: Evidence) -> Verdict:
    poisoned, shuffled, other = (
        np.concatenate(evidence[name], axis=1) for name in ("poisoned", "shuffled", "other")
    )
    if np.abs(poisoned - other).max() < TOLERANCE:
        return failed(
            "Two caches with different keys and values gave the same logits "
            f"(max |Δ| {np.abs(poisoned - other).max():.2g}). Who reads the cache?"
        )
    moved = np.abs(poisoned - shuffled).max()
    if moved > TOLERANCE:
        return failed(
            f"The same 5 cached rows in another order {challenge['order']} gave other logits "
            f"(max |Δ| {moved:.2g}). A rotated key carries its position inside. What else in your "
            f"layer depends on the place where a row is stored?"
        )
    return passed("The logits come from the cached rows, whatever they are and in whatever order.")


cache_is_the_only_memory = Check(
    "cache_is_the_only_memory",
    ("forward_cached", "KVCache"),
    draw_poison,
    probe_poison,
    judge_poison_by_properties,
)


def draw_two_texts(seed: int) -> Challenge:
    """A model and two texts of 6 tokens, to be decoded in turns."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    texts = [draw_tokens(rng, 3, 6, challenge["config"]["vocab_size"]) for _ in range(2)]
    return {**challenge, "texts": texts}


def probe_two_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model = build_model(challenge)
    alone = run_split(
        student, model, challenge["texts"][0], [3, 1, 2], new_cache(student, challenge, 6)
    )
    caches = [new_cache(student, challenge, 6) for _ in range(2)]
    logits: list[list[np.ndarray]] = [[], []]
    for start, end in ((0, 3), (3, 4), (4, 6)):
        for text, cache, out in zip(challenge["texts"], caches, logits, strict=True):
            out += run_split(student, model, text[:, start:end], [end - start], cache)
    caches[0].reset()
    again = run_split(student, model, challenge["texts"][1], [3, 1, 2], caches[0])
    return {"alone": alone, "first": logits[0], "second": logits[1], "again": again}


def two_texts_verdict(truth: Truth) -> Callable[..., Verdict]:
    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        first, second = challenge["texts"]
        apart = "Alone it agrees. What do your two caches share?"
        left_over = "What is left of the first text, and where?"
        for case, name, text, question in (
            ("One text, alone. ", "alone", first, "Does every_split_equals_uncached pass?"),
            ("Two texts in turns, each with its own cache. The first. ", "first", first, apart),
            ("Two texts in turns, each with its own cache. The second. ", "second", second, apart),
            ("A second text after reset() of the cache. ", "again", second, left_over),
        ):
            wrong = first_difference(evidence[name], truth(challenge, text), [3, 1, 2])
            if wrong:
                return failed(f"{case}{wrong} {question}")
        return passed("Two caches know nothing of each other, and a reset cache starts anew.")

    return judge


two_conversations_stay_apart = Check(
    "two_conversations_stay_apart",
    ("forward_cached", "KVCache"),
    draw_two_texts,
    probe_two_texts,
    two_texts_verdict(uncached),
)
