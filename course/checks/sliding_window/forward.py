"""Check that decoding with a ring gives the logits of the windowed model, however the text is cut."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from course.checks.caches import stored_numbers
from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import NO_PLACE, Difference, first_difference
from course.checks.drawing import build_model, draw_model, draw_split, draw_tokens
from course.checks.recorder import given
from course.checks.sliding_window.holding import wrong_text
from course.given.windowed import forward_windowed
from course.model.cache import CacheFull
from course.model.config import GPTConfig

Truth = Callable[[Challenge, np.ndarray, int, int], np.ndarray]
"""Computes the logits (B, T, V) of tokens by the challenge's model with a window and sinks."""
WINDOWS = (1, 4, 5, 7)


def draw_texts(seed: int) -> Challenge:
    """Draw a model, and for each of a few windows a text, sinks, and splits with chunks of up to
    2 · window + 3 tokens."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2, vocab_size=20)
    cases = []
    for number, window in enumerate(WINDOWS):
        n_sinks = int(rng.integers(1, 4)) if number % 2 else 0
        long = 2 * window + 3
        n = long + window + 3
        splits = [[long, *[1] * (n - long)], [1, 2, long, n - long - 3], draw_split(rng, n)]
        sizes = {"window": window, "n_sinks": n_sinks}
        cases.append({**sizes, "tokens": draw_tokens(rng, 2, n, 20), "splits": splits})
    return {"model": model, "cases": cases}


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed each text in each split, to a cache with room for one token more, since the last place is
    another check's question; record the logits of each chunk, or nothing where the cache is full too
    early, and how many numbers the cache then keeps."""
    model, config = build_model(challenge["model"]), GPTConfig(**challenge["model"]["config"])

    def run_split(case: Challenge, split: list[int]) -> Evidence:
        B, n = case["tokens"].shape
        sizes = (B, n + 1, case["window"], case["n_sinks"])
        cache = student.WindowedKVCache(config, *sizes)
        chunks = given(case["tokens"]).split(split, dim=1)
        try:
            logits = [
                forward_windowed(model, c, cache, student.window_mask).numpy() for c in chunks
            ]
        except CacheFull:
            logits = []
        return {"logits": logits, "stored": stored_numbers(cache)}

    return {
        "cases": [
            [run_split(case, split) for split in case["splits"]] for case in challenge["cases"]
        ]
    }


def texts_form(challenge: Challenge) -> Evidence:
    of_split = {"logits": Each(np.ndarray), "stored": int}
    return {"cases": [[of_split] * len(case["splits"]) for case in challenge["cases"]]}


@check("window_mask", "WindowedKVCache", draw=draw_texts, probe=probe_texts, evidence=texts_form)
def every_split_equals_the_windowed_model(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every chunk of every split; a cache of the whole text has no window."""
    agree, config = "", GPTConfig(**challenge["model"]["config"])
    for case, of_splits in zip(challenge["cases"], evidence["cases"], strict=True):
        window, n_sinks = case["window"], case["n_sinks"]
        expected = truth(challenge["model"], case["tokens"], window, n_sinks)
        for split, of_split in zip(case["splits"], of_splits, strict=True):
            chunks = of_split["logits"]
            sizes = f"Window {window}, {n_sinks} sinks."
            if len(chunks) != len(split):
                return failed(
                    f"{sizes} Chunks of {split}: CacheFull, in a cache for {sum(split) + 1} tokens. Is "
                    f"it the storage that is full, or the text that is too long?"
                )
            if wrong := first_difference(chunks, expected, split, tolerance):
                words = wrong.replace("the uncached one", "the windowed model without a cache")
                return failed(
                    f"{sizes} {words}{agree} (Do the checks before this one pass?) "
                    f"{_ask(case, split, wrong)}"
                )
            agree = f" Window {window}, chunks of {split} agree."
        # Of the least that is kept: what stays pending after a long chunk is asked elsewhere.
        stored = min(of_split["stored"] for of_split in of_splits)
        B, n = case["tokens"].shape
        row = 2 * config.n_layers * B * config.n_kv_heads * config.head_dim
        if wrong := wrong_text(stored, row, n, window, n_sinks):
            return failed(f"{sizes} {wrong}")
    return passed(
        f"Windows of {WINDOWS}, whole or in pieces: every logit is the windowed model's "
        f"(tolerance {tolerance:g})."
    )


def _ask(case: Challenge, split: list[int], wrong: Difference) -> str:
    if wrong.place == NO_PLACE:
        return "Does every token that was fed get its own output?"
    past = sum(split[: wrong.call])
    if past == 0:
        return "Nothing was held yet. What does append return, and what do its numbers say?"
    if past + wrong.place < case["window"]:
        return "Nothing is gone yet. Is each row there, and is its number right?"
    if split[wrong.call] > 1:
        return (
            f"This chunk has {split[wrong.call]} tokens, and each has a window of its own. Which old "
            f"rows does its first one need?"
        )
    if split[wrong.call - 1] > case["window"]:
        return (
            "If single tokens agree: the chunk before was longer than the window. Which rows stay, and "
            "whose are the numbers?"
        )
    return "At which position does this token stand, which rows are held, and which are gone?"
