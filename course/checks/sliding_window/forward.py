"""Check that decoding with a ring gives the logits of the windowed model, however the text is cut."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import NO_PLACE, Difference, first_difference
from course.checks.drawing import build_model, draw_model, draw_split, draw_tokens
from course.checks.recorder import given
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
    challenge = draw_model(rng, n_layers=2, vocab_size=20)
    cases = []
    for number, window in enumerate(WINDOWS):
        n_sinks = int(rng.integers(1, 4)) if number % 2 else 0
        long = 2 * window + 3
        n = long + window + 3
        splits = [[long, *[1] * (n - long)], [1, 2, long, n - long - 3], draw_split(rng, n)]
        tokens = draw_tokens(rng, 2, n, 20)
        cases.append({"window": window, "n_sinks": n_sinks, "tokens": tokens, "splits": splits})
    return {**challenge, "cases": cases}


def probe_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed each text in each split, to a cache of just its length; then one in float64."""
    model, config = build_model(challenge), GPTConfig(**challenge["config"])
    logits = [
        [_run(student, model, config, case, split) for split in case["splits"]]
        for case in challenge["cases"]
    ]
    case = challenge["cases"][1]
    wide = _run(student, model.double(), config, case, case["splits"][1], dtype=torch.float64)
    return {"logits": logits, "float64": wide}


def _run(
    student: SimpleNamespace, model, config: GPTConfig, case: Challenge, split: list[int], **options
) -> list[np.ndarray]:
    """Return the logits of each chunk, or nothing where the cache is full too early."""
    B, n = case["tokens"].shape
    sizes = (config, B, n, case["window"], case["n_sinks"])
    cache = student.WindowedKVCache(*sizes, **options)
    chunks = given(case["tokens"]).split(split, dim=1)
    try:
        return [forward_windowed(model, c, cache, student.window_mask).numpy() for c in chunks]
    except CacheFull:
        return []


def texts_form(challenge: Challenge) -> Evidence:
    chunks = Each(np.ndarray)
    return {
        "logits": [[chunks] * len(case["splits"]) for case in challenge["cases"]],
        "float64": chunks,
    }


@check("window_mask", "WindowedKVCache", draw=draw_texts, probe=probe_texts, evidence=texts_form)
def every_split_equals_the_windowed_model(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of every chunk of every split."""
    agree: list[str] = []
    plain = {name: challenge[name] for name in ("config", "state")}
    for number, case in enumerate(challenge["cases"]):
        window, n_sinks = case["window"], case["n_sinks"]
        wanted = truth(plain, case["tokens"], window, n_sinks)
        runs = list(zip(case["splits"], evidence["logits"][number], strict=True))
        if number == 1:
            runs.append((case["splits"][1], evidence["float64"]))
        for split, chunks in runs:
            sizes = f"Window {window}, {n_sinks} sinks. "
            if len(chunks) != len(split):
                return failed(
                    f"{sizes}Chunks of {split}: CacheFull, in a cache for {sum(split)} tokens. Is it "
                    f"the storage that is full, or the text that is too long?"
                )
            wrong = first_difference(chunks, wanted, split, tolerance)
            if wrong:
                so_far = f" {agree[-1]} agree." if agree else ""
                words = wrong.replace("the uncached one", "the windowed model without a cache")
                return failed(f"{sizes}{words}{so_far} {_ask(case, split, wrong)}")
            agree.append(f"Window {window}, chunks of {split}")
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
        return "The chunk before was longer than the window. Which of its rows stay?"
    return "At which position does this token stand, which rows are held, and which are gone?"
