"""Check cached generation: the uncached text, from the fewest rows of keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.cache import KVCacheLike
from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, outcome, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_tokens
from course.checks.kv_cache.container import new_cache
from course.measure.counting import count_kv_rows


def draw_prompt(seed: int) -> Challenge:
    """Draw a model, prompts (3, P) and n_new."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    length, n_new = int(rng.integers(2, 6)), int(rng.integers(3, 6))
    prompt = draw_tokens(rng, 3, length, challenge["config"]["vocab_size"])
    return {**challenge, "prompt": prompt, "n_new": n_new}


def probe_generation(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Generate with a new cache, a given one, one that goes on and one that is too small; and few
    tokens or none."""
    model, n_new = build_model(challenge), challenge["n_new"]
    prompt = torch.from_numpy(challenge["prompt"].copy())
    P = prompt.shape[1]
    with count_kv_rows(model) as count:
        text = student.generate_cached(model, prompt, n_new)
    evidence = {"rows": count.rows, "per_call": list(count.per_call)}
    cache = new_cache(student, challenge, 2 * (P + n_new))
    student.generate_cached(model, prompt, n_new, cache)
    held = len(cache)
    student.generate_cached(model, text[:, -1:], n_new, cache)
    small = new_cache(student, challenge, P + n_new - 2)
    return {
        **evidence,
        **probe_few(student, model, challenge),
        "text": text.numpy(),
        "dtype": str(text.dtype),
        "prompt_after": prompt.numpy(),
        "held": held,
        "continued": len(cache),
        "small": outcome(lambda: student.generate_cached(model, prompt, n_new, small)),
        "small_held": len(small),
    }


def probe_few(student: SimpleNamespace, model: Any, challenge: Challenge) -> Evidence:
    """Generate no token and one token, from the prompt and from its first token alone; and -1."""
    prompt = torch.from_numpy(challenge["prompt"].copy())
    room = new_cache(student, challenge, prompt.shape[1])

    def write(length: int, n_new: int, cache: KVCacheLike | None = None) -> np.ndarray | str:
        """Generate; the text, or the name of the exception that came instead."""
        start, texts = prompt[:, :length].clone(), []
        came = outcome(
            lambda: texts.append(student.generate_cached(model, start, n_new, cache).numpy())
        )
        return texts[0] if texts else came

    return {
        "none": [write(length, 0) for length in (prompt.shape[1], 1)],
        "one": [write(length, 1) for length in (prompt.shape[1], 1)],
        "one_in_a_cache": write(prompt.shape[1], 1, room),
        "one_held": len(room),
        "negative": outcome(lambda: student.generate_cached(model, prompt, -1)),
        "negative_in_a_cache": outcome(lambda: student.generate_cached(model, prompt, -1, room)),
    }


def generation_form(challenge: Challenge) -> Evidence:
    written = (np.ndarray, str)
    return {
        "text": np.ndarray,
        "dtype": str,
        "rows": int,
        "per_call": Each(int),
        "prompt_after": np.ndarray,
        "held": int,
        "continued": int,
        "none": [written] * 2,
        "one": [written] * 2,
        "one_in_a_cache": written,
        "one_held": int,
        "negative": str,
        "negative_in_a_cache": str,
        "small": str,
        "small_held": int,
    }


def judge_generation(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    prompt, g = challenge["prompt"], challenge["n_new"]
    B, P = prompt.shape
    case = f"A prompt (B, P) = ({B}, {P}) and n_new = {g}"
    if evidence["dtype"] != "torch.int64":
        return failed(f"{case}: got {evidence['dtype']}, wanted is torch.int64.")
    if (evidence["prompt_after"] != prompt).any():
        return failed(f"{case}: your function changed the prompt that it was given.")
    problem = _wrong_text(challenge, prompt, g, evidence["text"], truth, tolerance)
    problem = problem or _wrong_none(prompt, evidence["none"])
    problem = problem or _wrong_one(challenge, evidence, truth, tolerance)
    problem = problem or _wrong_refusal(evidence)
    problem = problem or _wrong_work(case, evidence, B, P, g)
    return problem or passed(
        f"{case}: the uncached text, from {P + g - 1} rows of keys instead of "
        f"{g * P + g * (g - 1) // 2}."
    )


def _wrong_text(
    challenge: Challenge,
    prompt: np.ndarray,
    n_new: int,
    text: np.ndarray | str,
    truth: Truth,
    tolerance: float,
) -> Verdict | None:
    """Say what is wrong with a text that continues `prompt` (B, P) by n_new tokens."""
    B, P = prompt.shape
    case = f"A prompt (B, P) = ({B}, {P}) and n_new = {n_new}"
    if isinstance(text, str):
        return failed(f"{case}: {text}, wanted is a text of {P + n_new} tokens a row.")
    if text.shape != (B, P + n_new):
        return failed(
            f"{case}: got shape {text.shape}, wanted is (B, P + n_new) = {(B, P + n_new)}."
        )
    if (text[:, :P] != prompt).any():
        return failed(f"{case}: the first {P} tokens that come back are not the prompt.")
    V = challenge["config"]["vocab_size"]
    if text.min() < 0 or text.max() >= V:
        return failed(f"{case}: ids run from {text.min()} to {text.max()}, not within 0 … {V - 1}.")
    wrong = first_wrong_choice(truth(challenge, text), text, P, tolerance)
    if wrong:
        return failed(
            f"{case}: batch row {wrong.row}, new token {wrong.step + 1}, is "
            f"{text[wrong.row, P + wrong.step]}; without a cache it is {wrong.likeliest}, whose logit "
            f"leads by {wrong.lead:.2g}. Which position's logits choose it, and what was fed?"
        )
    return None


def _wrong_none(prompt: np.ndarray, texts: list[np.ndarray | str]) -> Verdict | None:
    for start, text in zip((prompt, prompt[:, :1]), texts, strict=True):
        if isinstance(text, str) or text.shape != start.shape or (text != start).any():
            came = text if isinstance(text, str) else f"shape {text.shape}"
            return failed(
                f"A prompt (B, P) = {start.shape}: n_new = 0 should return the prompt and nothing "
                f"else, and it gave {came}."
            )
    return None


def _wrong_one(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict | None:
    prompt, P = challenge["prompt"], challenge["prompt"].shape[1]
    texts = [*evidence["one"], evidence["one_in_a_cache"]]
    for start, text in zip((prompt, prompt[:, :1], prompt), texts, strict=True):
        problem = _wrong_text(challenge, start, 1, text, truth, tolerance)
        if problem:
            return problem
    if evidence["one_held"] != P:
        return failed(
            f"A prompt of {P} tokens, n_new = 1 and a cache of {P} places: it holds "
            f"{evidence['one_held']} tokens afterwards, wanted are {P}. Which token is never fed?"
        )
    return None


def _wrong_refusal(evidence: Evidence) -> Verdict | None:
    for came in (evidence["negative"], evidence["negative_in_a_cache"]):
        if came != "ValueError":
            return failed(f"n_new = -1: {came}, wanted is ValueError.")
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
    judge_generation,
    evidence=generation_form,
    truth=uncached,
    tolerance=TOLERANCE,
)
