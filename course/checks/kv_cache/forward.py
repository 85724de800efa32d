"""Check the cached forward pass against the model without a cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import new_cache
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import (
    Difference,
    Truth,
    first_difference,
    outcome,
    question_about,
    uncached,
)
from course.checks.drawing import build_model, draw_model, draw_rows, draw_split, draw_tokens
from course.checks.kv_cache.layers import IN_FLOAT64
from course.checks.recorder import given
from course.measure.counting import count_kv_rows
from course.model.cache import CacheFull

COUNTED = [6, 3, 1]
"""Chunks whose passes are counted."""
DOUBLED = [3, 4]
"""Chunks that are fed in float64."""


def draw_text(seed: int) -> Challenge:
    """Draw a model, four texts of 10 tokens, some of them alike, and four ways to cut them up; and a text
    as long as the model can read."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(135, 150))
    challenge = draw_model(rng, max_seq_len=longest)
    V = challenge["config"]["vocab_size"]
    tokens, drawn = draw_rows(rng, 10, V), draw_split(rng, 10)
    return {
        **challenge,
        "tokens": tokens,
        "splits": [[10], [4, *[1] * 6], [1, 3, 2, 4], drawn],
        "long": draw_tokens(rng, 1, longest, V),
    }


def run_split(
    student: SimpleNamespace, model: Any, tokens: np.ndarray, split: list[int], cache: Any
) -> list[np.ndarray]:
    """Feed tokens chunk by chunk; the logits of each, (B, T_i, V)."""
    chunks = given(tokens).split(split, dim=1)
    return [student.forward_cached(model, chunk, cache).numpy() for chunk in chunks]


def probe_splits(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the text in each split, first to a cache with room to spare, then to caches of just its
    length. If these count what they were fed: one token more, the same in float64, and a text as long as
    the model can read."""
    model, tokens, splits = build_model(challenge), challenge["tokens"], []
    for number, split in enumerate(challenge["splits"]):
        cache = new_cache(student, challenge, 10 if number else 100, batch=len(tokens))
        try:
            logits = run_split(student, model, tokens, split, cache)
        except CacheFull:
            logits = []
        splits.append({"logits": logits, "length": len(cache)})
        if len(cache) != 10 or not logits:
            return {"splits": splits, "more": []}
    full = outcome(lambda: student.forward_cached(model, given(tokens[:, :1]), cache))
    wide, counted = (
        new_cache(student, challenge, 10, batch=len(tokens), dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    with count_kv_rows(model) as count:
        run_split(student, model, tokens, COUNTED, counted)
    double = build_model(challenge).double()
    more = {
        "passes": [list(calls) for calls in count.by_layer],
        "full": {"outcome": full, "held": len(cache)},
        "float64": run_split(student, double, tokens[:, :IN_FLOAT64], DOUBLED, wide),
        "at_the_end": _run_to_the_end(student, model, challenge),
    }
    return {"splits": splits, "more": [more]}


def _run_to_the_end(student: SimpleNamespace, model: Any, challenge: Challenge) -> Evidence:
    """Feed all but 2 tokens of the longest text there can be, then 3 tokens, then the last 2."""
    long, n = challenge["long"], challenge["long"].shape[1]
    cache = new_cache(student, challenge, n, batch=1)
    logits = run_split(student, model, long[:, :-2], [n - 2], cache)
    refusal = outcome(lambda: student.forward_cached(model, given(long[:, -3:]), cache))
    held = len(cache)
    if refusal == "CacheFull" and held == n - 2:
        logits += run_split(student, model, long[:, -2:], [2], cache)
    return {"outcome": refusal, "held": held, "logits": logits}


def splits_form(challenge: Challenge) -> Evidence:
    refused = {"outcome": str, "held": int}
    more = {
        "passes": [Each(int)] * challenge["config"]["n_layers"],
        "full": refused,
        "float64": Each(np.ndarray),
        "at_the_end": {**refused, "logits": Each(np.ndarray)},
    }
    return {"splits": Each({"logits": Each(np.ndarray), "length": int}), "more": Each(more)}


@check(
    "forward_cached",
    "KVCache",
    draw=draw_text,
    probe=probe_splits,
    evidence=splits_form,
    truth=uncached,
)
def every_split_equals_uncached(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every chunk of every split with the uncached ones."""
    expected, splits = truth(challenge, challenge["tokens"]), challenge["splits"]
    agree = []
    for split, seen in zip(splits, evidence["splits"], strict=False):
        chunks, length = seen["logits"], seen["length"]
        if not chunks:
            return failed(
                f"Chunks of {split}, a cache of 10 places: CacheFull, but the 10 tokens fit exactly. "
                f"If cache_returns_what_it_was_given passes: what do you compare before you compute, and "
                f"when is advance called?"
            )
        if length != 10:
            return failed(
                f"{len(chunks[0])} rows, chunks of {split}: each was fed 10 tokens, and len(cache) is "
                f"{length}. How often is advance called in one forward pass, and with which number?"
            )
        if len(chunks) != len(split):
            return failed(f"Chunks of {split}: logits of {len(chunks)} came back.")
        wrong = first_difference(chunks, expected, split, tolerance)
        if wrong:
            so_far = f" Chunks of {agree[-1]} agree." if agree else ""
            return failed(f"{wrong}{so_far} {_ask_about_chunk(split, wrong)}")
        agree.append(split)
    if len(agree) != len(splits) or len(evidence["more"]) != 1:
        return failed(f"Chunks of {splits} were fed, and logits of {len(agree)} came back.")
    [more] = evidence["more"]
    wrong = (
        _wrong_at_the_end(challenge, more, truth, tolerance)
        or _wrong_dtype(more["float64"], expected, tolerance)
        or _wrong_passes(challenge, more["passes"])
    )
    chunks = [np.concatenate(seen["logits"], axis=1) for seen in evidence["splits"]]
    apart = max(np.abs(logits - expected).max() for logits in chunks)
    praise = f"in {len(agree)} kinds of chunks (max |Δ| {apart:.0e}, tolerance {tolerance:g})."
    return failed(wrong) if wrong else passed(f"Every logit equals the uncached one, {praise}")


def _ask_about_chunk(split: list[int], wrong: Difference) -> str:
    if wrong.call == 0 and wrong.place == 0:
        return (
            "Nothing was cached yet, and the first token sees itself alone. If layer_equals_uncached "
            "passes: where, beside that layer, does your pass differ from MiniGPT.forward?"
        )
    return question_about(split, wrong)


def _wrong_at_the_end(
    challenge: Challenge, more: Evidence, truth: Truth, tolerance: float
) -> str | None:
    """Judge what is refused, and the longest text."""
    full, end, n = more["full"], more["at_the_end"], challenge["long"].shape[1]
    if (full["outcome"], full["held"]) != ("CacheFull", 10):
        return (
            f"A cache of 10 places holds 10 tokens; feeding one more: {full['outcome']}, and then it "
            f"holds {full['held']}. Wanted is CacheFull, and 10 still. What do you ask before anything "
            f"is computed?"
        )
    if (end["outcome"], end["held"]) != ("CacheFull", n - 2):
        return (
            f"Cache and model of {n} places each, {n - 2} held, 3 fed: {end['outcome']}, and then it "
            f"holds {end['held']}. Wanted is CacheFull, and {n - 2} still. Which of your lines is the "
            f"first that needs a place for token {n + 1}?"
        )
    if len(end["logits"]) != 2:
        return f"A text of {n} tokens was not read to its end."
    expected = truth(challenge, challenge["long"])
    wrong = first_difference(end["logits"], expected, [n - 2, 2], tolerance)
    return wrong and f"{wrong} Short texts agree. How far back does your layer look?"


def _wrong_dtype(chunks: list[np.ndarray], expected: np.ndarray, tolerance: float) -> str | None:
    """Judge the logits of a float64 model with a float64 cache."""
    if len(chunks) != len(DOUBLED):
        return f"A model and a cache of float64: logits of {len(chunks)} chunks came back."
    wrong = first_difference(chunks, expected, DOUBLED, tolerance)
    if wrong or any(chunk.dtype != np.float64 for chunk in chunks):
        return (
            f"A model and a cache of float64: {wrong or f'the logits are {chunks[0].dtype}.'} Which of "
            f"your lines makes numbers of another type?"
        )
    return None


def _wrong_passes(challenge: Challenge, by_layer: list[list[int]]) -> str | None:
    """Judge whether each chunk went through every layer once. What NumPy computed was not seen."""
    B = len(challenge["tokens"])
    expected = [B * n for n in COUNTED]
    for layer, calls in enumerate(by_layer if any(by_layer) else []):
        if calls != expected:
            return (
                f"{B} texts, chunks of {COUNTED}: layer {layer} computed keys for {calls} rows in "
                f"{len(calls)} passes, wanted are {expected}. How many tokens can one pass take?"
            )
    return None
