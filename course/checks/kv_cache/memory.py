"""Check what a forward pass knows of the past: what its cache holds, and nothing beside it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.caches import feed, new_cache
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, first_difference, uncached
from course.checks.drawing import build_model, draw_model, draw_tokens
from course.checks.kv_cache.forward import run_split


def draw_poison(seed: int) -> Challenge:
    """Draw a model, keys and values of 5 tokens that never were, and 3 tokens that follow."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    poison = rng.normal(size=(2, 3, 3, 2, 5, 6)).astype(np.float32)
    tokens = draw_tokens(rng, 3, 3, challenge["config"]["vocab_size"])
    return {**challenge, "poison": poison, "tokens": tokens, "order": rng.permutation(5).tolist()}


def probe_poison(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Feed the tokens after the drawn rows, after their negatives, and after them in another order."""
    model, poison = build_model(challenge), challenge["poison"]
    shuffled = poison[..., challenge["order"], :]
    evidence = {}
    for name, past in {"poisoned": poison, "shuffled": shuffled, "other": -poison}.items():
        cache = new_cache(student, challenge, 8)
        feed(cache, past)
        evidence[name] = run_split(student, model, challenge["tokens"], [2, 1], cache)
    return evidence


def poison_form(challenge: Challenge) -> Evidence:
    return dict.fromkeys(("poisoned", "shuffled", "other"), [np.ndarray] * 2)


@check("forward_cached", "KVCache", draw=draw_poison, probe=probe_poison, evidence=poison_form)
def cache_is_the_only_memory(challenge: Challenge, evidence: Evidence, tolerance: float) -> Verdict:
    """Compare the logits after three pasts: other rows give others, another order the same."""
    poisoned, shuffled, other = (
        np.concatenate(evidence[name], axis=1) for name in ("poisoned", "shuffled", "other")
    )
    if np.abs(poisoned - other).max() < tolerance:
        return failed(
            "Two caches with different keys and values gave the same logits "
            f"(max |Δ| {np.abs(poisoned - other).max():.2g}). Who reads the cache?"
        )
    moved = np.abs(poisoned - shuffled).max()
    if moved > tolerance:
        return failed(
            f"The same 5 cached rows in another order {challenge['order']} gave other logits "
            f"(max |Δ| {moved:.2g}). A rotated key carries its position inside. What else in your "
            f"layer depends on the place where a row is stored?"
        )
    return passed("The logits come from the cached rows, whatever they are and in whatever order.")


def draw_two_texts(seed: int) -> Challenge:
    """Draw a model and two texts of 6 tokens, to be decoded in turns."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    texts = [draw_tokens(rng, 3, 6, challenge["config"]["vocab_size"]) for _ in range(2)]
    return {**challenge, "texts": texts}


def probe_two_texts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Decode one text alone, then both in turns, then one in a cache that was reset."""
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


def two_texts_form(challenge: Challenge) -> Evidence:
    return dict.fromkeys(("alone", "first", "second", "again"), [np.ndarray] * 3)


@check(
    "forward_cached",
    "KVCache",
    draw=draw_two_texts,
    probe=probe_two_texts,
    evidence=two_texts_form,
    truth=uncached,
)
def two_conversations_stay_apart(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare the logits of both texts with the uncached ones, wherever they were decoded."""
    first, second = challenge["texts"]
    apart = "Alone it agrees. What do your two caches share?"
    left_over = "What is left of the first text, and where?"
    for case, name, text, question in (
        ("One text, alone. ", "alone", first, "Does every_split_equals_uncached pass?"),
        ("Two texts in turns, each with its own cache. The first. ", "first", first, apart),
        ("Two texts in turns, each with its own cache. The second. ", "second", second, apart),
        ("A second text after reset() of the cache. ", "again", second, left_over),
    ):
        wrong = first_difference(evidence[name], truth(challenge, text), [3, 1, 2], tolerance)
        if wrong:
            return failed(f"{case}{wrong} {question}")
    return passed("Two caches know nothing of each other, and a reset cache starts anew.")
