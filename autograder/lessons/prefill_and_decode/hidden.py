"""The hidden checks of lesson 04: drawn from seeds that nobody knows, and judged by the oracle.

The oracle shares no code with the course.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from autograder import oracle
from autograder.lessons.prefill_and_decode import probes
from course.checks import prefill_and_decode as visible
from course.checks.calls import Case, drawn
from course.checks.check import Challenge, Each, Evidence, Verdict, by_name, failed
from course.checks.comparing import Truth
from course.checks.passes import largest_difference
from course.checks.prefill_and_decode import chunks, latency, streaming
from course.checks.recording import TENSOR
from course.checks.tolerance import TOLERANCE
from course.measure.latency import Latency


def logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the oracle's logits, (B, T, V), float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


def draw_tables(rng: np.random.Generator, n: int, n_words: int) -> np.ndarray:
    """Draw n tables of words, (n, V): each word of a table means another one."""
    return np.stack([rng.permutation(n_words) for _ in range(n)])


# --- prefill -------------------------------------------------------------------------------------


def draw_chunks(seed: int) -> Challenge:
    """Draw the visible challenge; chunk sizes with which its first case is asked again, and a table of
    words for each forward pass then."""
    challenge = chunks.draw_prompts(seed)
    case = challenge["cases"][0]
    n_passes, V = case["prompt"].shape[1], case["config"]["vocab_size"]
    tables = draw_tables(np.random.default_rng([seed, 1]), n_passes, V)
    return {**challenge, "exchanged": [case["sizes"][2], None], "tables": tables}


def chunks_form(challenge: Challenge) -> Evidence:
    exchanged = [TENSOR] * len(challenge["exchanged"])
    return {**chunks.sizes_form(challenge), "exchanged": exchanged}


def judge_chunks(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge as the visible check does; then compare the logits with those of words that each mean
    what they meant in the pass of their chunk."""
    check = visible.every_chunk_size_gives_the_same_logits
    verdict = check.verdict(challenge, evidence, truth, tolerance)
    if verdict.score < 1:
        return verdict
    case = challenge["cases"][0]
    prompt = case["prompt"]
    for size, result in zip(challenge["exchanged"], evidence["exchanged"], strict=True):
        lengths = chunks.chunks_of(prompt.shape[1], size)
        tables = np.repeat(challenge["tables"][: len(lengths)], lengths, axis=0)  # (P, V)
        meant = np.take_along_axis(tables.T, prompt, axis=0)  # (B, P): of column t, by table t
        row, delta = largest_difference(result, truth(case, meant)[:, -1])
        if delta > tolerance:
            return failed(
                f"A model whose words mean something else in every forward pass, a prompt of "
                f"{prompt.shape[1]} tokens, chunk_size {size or 'not given'}: batch row {row} differs "
                f"(max |Δ| {delta:.2g}, tolerance {tolerance:g}). In which pass does each token go in?"
            )
    return verdict


# --- stream --------------------------------------------------------------------------------------


def draw_turns(seed: int) -> Challenge:
    """Draw the visible challenge, and three tables of words for each token that is asked for, and for
    one more: (n_new + 1, 3, V)."""
    challenge = streaming.draw_turns(seed)
    rounds, V = challenge["n_new"] + 1, challenge["config"]["vocab_size"]
    tables = draw_tables(np.random.default_rng([seed, 1]), 3 * rounds, V)
    return {**challenge, "turns": tables.reshape(rounds, 3, V)}


def turns_form(challenge: Challenge) -> Evidence:
    exchanged = {"exchanged": Each(streaming.STREAM), "outcome": str}
    return {**streaming.laziness_form(challenge), **exchanged}


def judge_turns(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge as the visible check does; then ask whether each token is the likeliest after the prompt as
    it was meant in turn 0, and after each token as it was meant in the turn in which it was fed."""
    verdict = visible.no_step_before_it_is_asked_for.verdict(challenge, evidence)
    if verdict.score < 1:
        return verdict
    prompt, rounds, exchanged = challenge["prompt"], challenge["turns"], evidence["exchanged"]
    (B, P), V, n_new = prompt.shape, challenge["config"]["vocab_size"], challenge["n_new"]
    case = "A stream whose words mean something else after each token that it gave out"
    if evidence["outcome"] != "returned" or len(exchanged) != 2:
        return failed(
            f"{case}, continued from its last token by another one: {evidence['outcome']}."
        )
    for streamed, n in zip(exchanged, (n_new, 1), strict=True):
        if wrong := streaming.wrong_tokens(case, streamed, B, n, V):
            return wrong
    tokens = np.hstack([streamed["tokens"] for streamed in exchanged])
    fed = [rounds[step + 1, 0][tokens[:, step]] for step in range(n_new)]
    meant = np.concatenate([rounds[0, 0][prompt], np.stack(fed, axis=1)], axis=1)
    after = truth(challenge, meant)[:, P - 1 :]  # (B, n_new + 1, V)
    for step in range(n_new + 1):
        chosen = after[np.arange(B), step, tokens[:, step]]
        if (after[:, step].max(axis=1) - chosen > tolerance).any():
            return failed(
                f"{case}: new token {step + 1} is not the one that follows by the meanings of its own "
                f"turn. When was it computed, and from how many passes?"
            )
    return verdict


# --- latency_metrics -----------------------------------------------------------------------------


def draw_streams(rng: np.random.Generator) -> Iterator[Case]:
    """Draw streams of a clock that has run for a day or more: of few tokens and of many, with gaps of a
    slow machine, now and then a long one, and two tokens at one moment; the last but one has one token,
    and the last a clock that starts with it."""
    streams = []
    for n in (2, 3, int(rng.integers(5, 9)), int(rng.integers(12, 30)), 130, 1):
        start = float(rng.uniform(1e5, 1e6))
        gaps = rng.uniform(0.07, 0.3, n)  # left over in float32, though not all of their digits
        gaps[0] = rng.uniform(0.5, 2.0)  # the prefill
        if n > 4:
            long, none = rng.choice(np.arange(1, n), 2, replace=False)
            gaps[long] *= 6  # somebody else's prefill came between
            gaps[none] = 0.0
        streams.append((start, (start + np.cumsum(gaps)).tolist()))
    yield from latency.calls_of([*streams, (0.0, np.cumsum(rng.uniform(0.1, 0.5, 4)).tolist())])


def true_latency(start: float, stamps: list[float]) -> Latency:
    """Count out the numbers of a stream, one gap at a time."""
    gaps = sorted(late - early for early, late in pairwise(stamps))
    if not gaps:
        return Latency(stamps[0] - start, None, None, None, None)

    def percentile(q: int) -> float:
        whole_places, hundredths = divmod(q * (len(gaps) - 1), 100)
        low = gaps[whole_places]
        high = gaps[min(whole_places + 1, len(gaps) - 1)]
        return low + (high - low) * hundredths / 100

    seconds = stamps[-1] - stamps[0]
    rates = seconds / len(gaps), percentile(50), percentile(99), len(gaps) / seconds
    return Latency(stamps[0] - start, *rates)


def pad(prompts: list[np.ndarray], pad_id: int, part: str) -> np.ndarray:
    """Put pads before each prompt; or count them."""
    n_pads = [max(map(len, prompts)) - len(prompt) for prompt in prompts]
    tokens = [[pad_id] * n + p.tolist() for n, p in zip(n_pads, prompts, strict=True)]
    return np.array(tokens if part == "tokens" else n_pads, dtype=np.int64)


CHECKS = by_name(
    visible.every_chunk_size_gives_the_same_logits.hidden(
        probe=probes.every_chunk_size_gives_the_same_logits,
        challenge=draw_chunks,
        verdict=judge_chunks,
        evidence=chunks_form,
        truth=logits,
    ),
    visible.too_long_a_prompt_changes_nothing.hidden(truth=logits),
    visible.stream_writes_the_uncached_text.hidden(truth=logits),
    visible.no_step_before_it_is_asked_for.hidden(
        probe=probes.no_step_before_it_is_asked_for,
        challenge=draw_turns,
        verdict=judge_turns,
        evidence=turns_form,
        truth=logits,
        tolerance=TOLERANCE,
    ),
    visible.rollback_equals_a_fresh_start.hidden(truth=logits),
    visible.first_token_is_no_gap.hidden(challenge=drawn(draw_streams), truth=true_latency),
    visible.pads_stand_on_the_left.hidden(truth=pad),
    visible.pads_are_never_seen,
    visible.positions_count_own_tokens,
    visible.each_row_equals_itself_alone.hidden(truth=logits),
)
