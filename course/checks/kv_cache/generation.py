"""Cached generation: the uncached text, from the fewest rows of keys."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, outcome, uncached
from course.checks.drawing import build_model, draw_model, draw_tokens
from course.checks.kv_cache.container import new_cache
from course.measure.counting import count_kv_rows


def draw_prompt(seed: int) -> Challenge:
    """A model, prompts (3, P) and n_new."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    length, n_new = int(rng.integers(2, 6)), int(rng.integers(3, 6))
    prompt = draw_tokens(rng, 3, length, challenge["config"]["vocab_size"])
    return {**challenge, "prompt": prompt, "n_new": n_new}


def probe_generation(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, n_new = build_model(challenge), challenge["n_new"]
    prompt = torch.from_numpy(challenge["prompt"].copy())
    P = prompt.shape[1]
    with count_kv_rows(model) as count:
        text = student.generate_cached(model, prompt, n_new)
    cache = new_cache(student, challenge, 2 * (P + n_new))
    student.generate_cached(model, prompt, n_new, cache)
    held = len(cache)
    student.generate_cached(model, text[:, -1:], n_new, cache)
    small = new_cache(student, challenge, P + n_new - 2)
    return {
        "text": text.numpy(),
        "dtype": str(text.dtype),
        "rows": count.rows,
        "per_call": list(count.per_call),
        "prompt_after": prompt.numpy(),
        "held": held,
        "continued": len(cache),
        "none": student.generate_cached(model, prompt, 0).numpy(),
        "negative": outcome(lambda: student.generate_cached(model, prompt, -1)),
        "small": outcome(lambda: student.generate_cached(model, prompt, n_new, small)),
        "small_held": len(small),
    }


def generation_verdict(truth: Truth) -> Callable[..., Verdict]:
    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        B, P = challenge["prompt"].shape
        g = challenge["n_new"]
        case = f"A prompt (B, P) = ({B}, {P}) and n_new = {g}"
        problem = _wrong_text(case, challenge, evidence, truth)
        problem = problem or _wrong_work(case, evidence, B, P, g)
        return problem or passed(
            f"{case}: the uncached text, from {P + g - 1} rows of keys instead of "
            f"{g * P + g * (g - 1) // 2}."
        )

    return judge


def _wrong_text(
    case: str, challenge: Challenge, evidence: Evidence, truth: Truth
) -> Verdict | None:
    text, prompt = evidence["text"], challenge["prompt"]
    B, P = prompt.shape
    wanted = (B, P + challenge["n_new"])
    if text.shape != wanted or evidence["dtype"] != "torch.int64":
        return failed(
            f"{case}: got {evidence['dtype']} of shape {text.shape}, wanted is torch.int64 of "
            f"(B, P + n_new) = {wanted}."
        )
    if (evidence["prompt_after"] != prompt).any():
        return failed(f"{case}: your function changed the prompt that it was given.")
    if (text[:, :P] != prompt).any():
        return failed(f"{case}: the first {P} tokens that come back are not the prompt.")
    V = challenge["config"]["vocab_size"]
    if text.min() < 0 or text.max() >= V:
        return failed(f"{case}: ids run from {text.min()} to {text.max()}, not within 0 … {V - 1}.")
    wrong = first_wrong_choice(truth(challenge, text), text, P)
    if wrong:
        return failed(
            f"{case}: batch row {wrong.row}, new token {wrong.step + 1}, is "
            f"{text[wrong.row, P + wrong.step]}; without a cache it is {wrong.likeliest}, whose logit "
            f"leads by {wrong.lead:.2g}. Which position's logits choose it, and what was fed?"
        )
    if evidence["none"].shape != prompt.shape or (evidence["none"] != prompt).any():
        return failed("n_new = 0 should return the prompt and nothing else.")
    if evidence["negative"] != "ValueError":
        return failed(f"n_new = -1: {evidence['negative']}, wanted is ValueError.")
    return None


def _wrong_work(case: str, evidence: Evidence, B: int, P: int, g: int) -> Verdict | None:
    rows, calls = evidence["rows"], [n // B for n in evidence["per_call"]]
    if rows != B * (P + g - 1):
        return failed(
            f"{case}: {rows} rows of keys were computed ({B} texts; tokens a call: {calls}), needed "
            f"are {B * (P + g - 1)}. Which of these were computed before, or are never read?"
        )
    if evidence["held"] != P + g - 1 or evidence["continued"] != P + 2 * g - 1:
        return failed(
            f"{case}, with a cache given: it holds {evidence['held']} tokens afterwards and "
            f"{evidence['continued']} after {g} more, wanted are {P + g - 1} and {P + 2 * g - 1}. "
            f"Is the cache that was given the one that is used?"
        )
    if evidence["small"] != "CacheFull" or evidence["small_held"] != 0:
        return failed(
            f"{case}, with an empty cache of {P + g - 2} places: {evidence['small']}, and then it "
            f"holds {evidence['small_held']}. Wanted is CacheFull and 0: can you know before the "
            f"first forward pass?"
        )
    return None


no_row_is_computed_twice = Check(
    "no_row_is_computed_twice",
    ("generate_cached", "KVCache"),
    draw_prompt,
    probe_generation,
    generation_verdict(uncached),
)
