"""The hidden checks of lesson 03: drawn from seeds that nobody knows, and judged by the oracle.

The oracle shares no code with the course.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autograder import oracle
from autograder.lessons.kv_cache import probes
from course.checks import kv_cache as visible
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed
from course.checks.comparing import Truth, first_difference
from course.checks.kv_cache.generation import draw_prompt
from course.checks.kv_cache.layers import positions_of
from course.model.config import GPTConfig


def logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the oracle's logits, (B, T, V), float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


def logits_after(challenge: Challenge, tokens: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Compute the oracle's logits of tokens that follow the rows `past`, (2, L, B, G, S, D)."""
    pairs = [(past[0, layer], past[1, layer]) for layer in range(past.shape[1])]
    return oracle.forward(challenge["state"], challenge["config"], tokens, pairs)


def layer_output(case: Challenge) -> tuple[np.ndarray, np.ndarray]:
    """Compute the oracle's output of the case's layer, (B, T, C), and its keys, (B, G, T, D); float64."""
    prefix = f"blocks.{case['layer']}.attn."
    positions = positions_of(case).astype(np.float64)
    rows = [
        oracle.attention_layer(case["state"], prefix, case["config"], row, positions)
        for row in case["x"].astype(np.float64)
    ]
    return np.stack([out for out, _, _ in rows]), np.stack([keys for _, keys, _ in rows])


def judge_poison(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[Challenge, np.ndarray, np.ndarray], np.ndarray],
    tolerance: float,
) -> Verdict:
    """Compare the logits after random keys and values with the oracle's from exactly those."""
    poison = challenge["poison"]
    shuffled = poison[..., challenge["order"], :]
    for name, past in (("poisoned", poison), ("other", -poison), ("shuffled", shuffled)):
        expected = truth(challenge, challenge["tokens"], past)
        wrong = first_difference(evidence[name], expected, [2, 1], tolerance)
        if wrong and name != "shuffled":  # whose message is below
            return failed(
                f"A cache of 5 rows of random keys and values, then 3 tokens. {wrong} Does "
                f"every_split_equals_uncached pass? If so, where do your logits take the past from?"
            )
    visible_check = visible.cache_is_the_only_memory
    verdict = visible_check.verdict(challenge, evidence, tolerance=tolerance)
    if verdict.score == 1 and wrong:
        return failed(f"The same 5 cached rows in another order. {wrong}")
    return verdict


# --- a forward pass -------------------------------------------------------------------------------


def two_texts_form(challenge: Challenge) -> Evidence:
    return {**visible.two_conversations_stay_apart.evidence(challenge), "flops": int}


def judge_two_texts(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge as the visible check does; then whether a text was read once: who reads all of it again at
    each chunk has nothing that two conversations could mix up."""
    seen = {name: part for name, part in evidence.items() if name != "flops"}
    visible_check = visible.two_conversations_stay_apart
    verdict = visible_check.verdict(challenge, seen, truth=truth, tolerance=tolerance)
    B, T = np.shape(challenge["texts"][0])
    limit = flops_of_rows(challenge, B, T)
    if verdict.score == 1 and evidence["flops"] > limit:
        return failed(
            f"The logits are right, but for {B} texts of {T} tokens, chunk by chunk, "
            f"{evidence['flops']:,} FLOPs were spent where {limit:,} are enough. Which tokens go "
            f"through the model again when the next chunk comes?"
        )
    return verdict


def bytes_of(case: Challenge) -> int:
    """Count the bytes of an array of all keys and values of a case, (2, L, B, G, S, D)."""
    c = GPTConfig(**case["config"])
    shape = (2, c.n_layers, case["batch"], c.n_kv_heads, case["tokens"], c.head_dim)
    return np.broadcast_to(np.zeros(1, case["dtype"]), shape).nbytes


def copied_by_growing(case: Challenge) -> int:
    """Count the old numbers of each step, token by token: all that (2, L, B, G, n, D) held before."""
    c = GPTConfig(**case["config"])
    shape = (2, c.n_layers, case["batch"], c.n_kv_heads, case["tokens"], c.head_dim)
    held = np.broadcast_to(np.zeros(1), shape)
    return sum(held[..., :step, :].size for step in range(case["tokens"]))


# --- generation ----------------------------------------------------------------------------------


def draw_generation(seed: int) -> Challenge:
    """Draw a prompt; and for each n what a cache of n tokens is to hold, (n, 2, L, B, G, places, D)."""
    challenge = draw_prompt(seed)
    rng = np.random.default_rng([seed, 1])
    held, c = int(rng.integers(2, 6)), GPTConfig(**challenge["config"])
    places = held + challenge["n_new"]
    shape = (places + 1, 2, c.n_layers, 4, c.n_kv_heads, places, c.head_dim)
    contents = rng.normal(size=shape).astype(np.float32)
    return {**challenge, "held": held, "contents": contents}


def generation_form(challenge: Challenge) -> Evidence:
    visible_form = visible.no_row_is_computed_twice.evidence(challenge)
    return {**visible_form, "flops": int, "exchanged": (np.ndarray, str)}


def wrong_after_exchange(
    challenge: Challenge, evidence: Evidence, tolerance: float
) -> Verdict | None:
    """Find a new token that is not the likeliest after what the cache held at its step."""
    text, g = evidence["exchanged"], challenge["n_new"]
    case = "A cache in which all keys and values are exchanged for others before every pass"
    prompt = challenge["prompt"][:, -1:]
    if isinstance(text, str):
        return failed(f"{case}: a prompt {prompt.shape} and n_new={g} gave {text}.")
    if text.shape != (len(prompt), 1 + g) or (text[:, :1] != prompt).any():
        return failed(f"{case}: a prompt {prompt.shape} and n_new={g} gave shape {text.shape}.")
    for step in range(g):
        n = challenge["held"] + step
        past = challenge["contents"][n][..., :n, :]
        last = logits_after(challenge, text[:, step : step + 1], past)[:, 0]  # (B, V)
        chosen = last[np.arange(len(last)), text[:, step + 1]]
        for row in np.flatnonzero(last.max(axis=1) - chosen > tolerance)[:1]:
            return failed(
                f"{case}: batch row {row}, new token {step + 1}, is {text[row, step + 1]}; from the "
                f"{n} rows that the cache holds at that step it is {last[row].argmax()}. What does "
                f"your code compute from beside the cache and the newest token?"
            )
    return None


def flop_limit(challenge: Challenge) -> int:
    """Count the FLOPs that a cached generation may need at most."""
    B, P = challenge["prompt"].shape
    return flops_of_rows(challenge, B, P + challenge["n_new"] - 1)


def flops_of_rows(challenge: Challenge, B: int, rows: int) -> int:
    """Count the FLOPs of B texts of so many tokens, each fed once.

    Logits of every token fed, and attention of every query over every place, masked or not: one row
    computed too often costs more than this leaves room for.
    """
    c = GPTConfig(**challenge["config"])
    C, kv_width = c.d_model, c.n_kv_heads * c.head_dim
    layer = C * (C + 2 * kv_width) + C * C + 3 * C * c.d_ff
    attention = 2 * C * (rows + 1)
    return 2 * B * rows * (c.n_layers * (layer + attention) + c.vocab_size * C)


def judge_generation(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge as the visible check does; then the work by its FLOPs, and the text without a past."""
    visible_check = visible.no_row_is_computed_twice
    verdict = visible_check.verdict(challenge, evidence, truth=truth, tolerance=tolerance)
    if verdict.score < 1:
        return verdict
    limit = flop_limit(challenge)
    if evidence["flops"] > limit:
        return failed(
            f"The text is right, but {evidence['flops']:,} FLOPs were spent where {limit:,} are "
            f"enough. What is computed again, beside the rows that go through wk?"
        )
    return wrong_after_exchange(challenge, evidence, tolerance) or verdict


CHECKS = by_name(
    visible.mask_is_rectangular,
    visible.growing_cache_returns_everything,
    visible.copies_add_up.hidden(truth=copied_by_growing),
    visible.cache_returns_what_it_was_given,
    visible.full_cache_changes_nothing,
    visible.cache_can_go_back,
    visible.layer_equals_uncached.hidden(truth=layer_output),
    visible.every_split_equals_uncached.hidden(truth=logits),
    visible.cache_is_the_only_memory.hidden(truth=logits_after, verdict=judge_poison),
    visible.two_conversations_stay_apart.hidden(
        probe=probes.two_conversations_stay_apart,
        evidence=two_texts_form,
        verdict=judge_two_texts,
        truth=logits,
    ),
    visible.no_row_is_computed_twice.hidden(
        probe=probes.no_row_is_computed_twice,
        challenge=draw_generation,
        verdict=judge_generation,
        evidence=generation_form,
        truth=logits,
    ),
    visible.bytes_match_the_storage.hidden(truth=bytes_of),
)
