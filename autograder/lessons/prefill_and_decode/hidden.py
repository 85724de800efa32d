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
from course.checks.prefill_and_decode import chunks, latency, ragged, streaming
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
                f"A model whose embeddings change before every forward pass, a prompt of "
                f"{prompt.shape[1]} tokens, chunk_size {size or 'not given'}: batch row {row} differs "
                f"(max |Δ| {delta:.2g}, tolerance {tolerance:g}). In which pass does each token go in?"
            )
    return verdict


# --- stream --------------------------------------------------------------------------------------


def text_form(challenge: Challenge) -> Evidence:
    return {
        "streams": [streaming.STREAM] * 4,
        "first": np.ndarray,
        "n_passes": int,
        "held": int,
        "logits": TENSOR,
    }


def judge_text(challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float) -> Verdict:
    """Judge as the visible check does; then ask whether it was streamed, after a prompt in chunks, and
    whether the cache that was handed in has the prompt: lesson 03's function writes the same text."""
    verdict = visible.stream_writes_the_uncached_text.verdict(challenge, evidence, truth, tolerance)
    if verdict.score < 1:
        return verdict
    prompt, n_new, first = challenge["prompt"], challenge["n_new"], evidence["first"]
    case = f"A prompt (B, P) = {prompt.shape} and n_new = {n_new}"
    if evidence["held"] >= prompt.shape[1] + n_new - 1:
        return failed(
            f"{case}: when the first token comes out, the cache holds {evidence['held']} tokens, as if "
            f"the last step was made. Who could read along?"
        )
    if evidence["n_passes"] < 2:
        return failed(
            f"{case}, chunk_size {streaming.CHUNK}: the text is right, but the whole prompt went in "
            f"by one pass. What becomes of chunk_size?"
        )
    if first.shape != (len(prompt), 1):
        return failed(f"{case}, a second time: no first token came out. What is left of the first?")
    expected = truth(challenge, np.hstack([prompt, first]))[:, -1]
    row, delta = largest_difference(evidence["logits"], expected)
    if delta > tolerance:
        return failed(
            f"{case}: the text is right. Then the cache is cut back to the prompt, and the first new "
            f"token is fed once more: its logits differ from the uncached ones (batch row {row}, max "
            f"|Δ| {delta:.2g}, tolerance {tolerance:g}). Into which cache did the prompt go?"
        )
    return verdict


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
    case = "A stream of a model whose embeddings change after each token that comes out"
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
                f"{case}: new token {step + 1} is not the one that follows from the embeddings of its "
                f"pass. When was it computed, from how many passes, and from which row?"
            )
    return verdict


def draw_edit(seed: int) -> Challenge:
    """Draw the visible challenge, and two tables of words, one for each text: (2, V)."""
    challenge = streaming.draw_edit(seed)
    tables = draw_tables(np.random.default_rng([seed, 1]), 2, challenge["config"]["vocab_size"])
    return {**challenge, "meanings": tables}


def edit_form(challenge: Challenge) -> Evidence:
    exchanged = {"exchanged": Each(streaming.STREAM), "ended": str}
    return {**streaming.edit_form(challenge), **exchanged}


def judge_edit(challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float) -> Verdict:
    """Judge as the visible check does; then ask whether the second text goes on from what the cache
    holds: the shared part as it was meant when it was fed."""
    verdict = visible.rollback_equals_a_fresh_start.verdict(challenge, evidence, truth, tolerance)
    if verdict.score < 1:
        return verdict
    (before, now), shared, second = (challenge[n] for n in ("meanings", "shared", "second"))
    B, V, n_new = len(shared), challenge["config"]["vocab_size"], challenge["n_new"]
    case = "The same, with a model whose embeddings change at the cut"
    if evidence["ended"] != "returned" or len(evidence["exchanged"]) != 1:
        return failed(f"{case}: {evidence['ended']}. What do you keep from one text to the next?")
    (streamed,) = evidence["exchanged"]
    if wrong := streaming.wrong_tokens(case, streamed, B, n_new, V):
        return wrong
    tokens = streamed["tokens"]
    meant = np.hstack([before[shared], now[second], now[tokens]])
    after = truth(challenge, meant)[:, shared.shape[1] + second.shape[1] - 1 : -1]  # (B, n_new, V)
    chosen = np.take_along_axis(after, tokens[:, :, None], axis=2)[:, :, 0]
    if (after.max(axis=2) - chosen > tolerance).any():
        return failed(
            f"{case}, where {shared.shape[1]} tokens stay in the cache: the text is not the one that "
            f"goes on from these. Is each token the likeliest, and which went through again?"
        )
    return verdict


# --- latency_metrics -----------------------------------------------------------------------------


def draw_streams(rng: np.random.Generator) -> Iterator[Case]:
    """Draw streams of a clock that has run for a day or more: of few tokens and of many, with gaps of a
    slow machine, now and then a long one, and two tokens at one moment; one with equal gaps; the last but
    one has one token, and the last a clock that starts with it."""
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
    equal = np.cumsum([0.5, *[0.125] * int(rng.integers(4, 9)), 0.75])  # exact in float64
    streams.insert(-1, (100_000.0, (100_000.0 + equal).tolist()))
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


# --- ragged batches ------------------------------------------------------------------------------


def pad(prompts: list[np.ndarray], pad_id: int, part: str) -> np.ndarray:
    """Put pads before each prompt; or count them."""
    n_pads = [max(map(len, prompts)) - len(prompt) for prompt in prompts]
    tokens = [[pad_id] * n + p.tolist() for n, p in zip(n_pads, prompts, strict=True)]
    return np.array(tokens if part == "tokens" else n_pads, dtype=np.int64)


def draw_ragged_texts(seed: int) -> Challenge:
    """Draw the visible challenge, and a table of words for each pass of its first batch: (3, V)."""
    challenge, rng = ragged.draw_ragged_texts(seed), np.random.default_rng([seed, 1])
    n_passes = 1 + len(ragged.STEPS)
    return {
        **challenge,
        "tables": draw_tables(rng, n_passes, challenge["config"]["vocab_size"]),
    }


def ragged_form(challenge: Challenge) -> Evidence:
    exchanged = [np.ndarray] * len(challenge["tables"])
    return {**ragged.ragged_form(challenge), "exchanged": exchanged}


def judge_ragged(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge as the visible check does; then compare the first batch with words that each mean what they
    meant in the pass in which all rows went in together."""
    verdict = visible.each_row_equals_itself_alone.verdict(challenge, evidence, truth, tolerance)
    if verdict.score < 1:
        return verdict
    batch, parts = challenge["batches"][0], evidence["exchanged"]
    lengths, n_words = [len(p) for p in batch["prompts"]], challenge["config"]["vocab_size"]
    T = max(lengths)
    widths = T, *ragged.STEPS
    case = f"A model whose embeddings change before every pass, prompts of {lengths} tokens"
    if [part.shape for part in parts] != [(len(lengths), n, n_words) for n in widths]:
        return failed(f"{case}: logits of {[part.shape for part in parts]}.")
    for row, prompt in enumerate(batch["prompts"]):
        tokens = np.concatenate([prompt, batch["next"][row]])
        pass_of = np.repeat(range(len(widths)), [len(prompt), *ragged.STEPS])
        expected = truth(challenge, challenge["tables"][pass_of, tokens][None])[0]  # (P + 3, V)
        got = np.concatenate([part[row] for part in parts])[T - len(prompt) :]
        _, delta = largest_difference(got, expected)
        if delta > tolerance:
            return failed(
                f"{case}, and then {' and '.join(map(str, ragged.STEPS))} more: row {row} differs from "
                f"itself alone (max |Δ| {delta:.2g}, tolerance {tolerance:g}). How many passes does "
                f"each call make, and which tokens go into it?"
            )
    return verdict


CHECKS = by_name(
    visible.every_chunk_size_gives_the_same_logits.hidden(
        probe=probes.every_chunk_size_gives_the_same_logits,
        challenge=draw_chunks,
        verdict=judge_chunks,
        evidence=chunks_form,
        truth=logits,
    ),
    visible.too_long_a_prompt_changes_nothing.hidden(truth=logits),
    visible.stream_writes_the_uncached_text.hidden(
        probe=probes.stream_writes_the_uncached_text,
        verdict=judge_text,
        evidence=text_form,
        truth=logits,
    ),
    visible.no_step_before_it_is_asked_for.hidden(
        probe=probes.no_step_before_it_is_asked_for,
        challenge=draw_turns,
        verdict=judge_turns,
        evidence=turns_form,
        truth=logits,
        tolerance=TOLERANCE,
    ),
    visible.rollback_equals_a_fresh_start.hidden(
        probe=probes.rollback_equals_a_fresh_start,
        challenge=draw_edit,
        verdict=judge_edit,
        evidence=edit_form,
        truth=logits,
    ),
    visible.first_token_is_no_gap.hidden(challenge=drawn(draw_streams), truth=true_latency),
    visible.pads_stand_on_the_left.hidden(truth=pad),
    visible.pads_are_never_seen,
    visible.positions_count_own_tokens,
    visible.each_row_equals_itself_alone.hidden(
        probe=probes.each_row_equals_itself_alone,
        challenge=draw_ragged_texts,
        verdict=judge_ragged,
        evidence=ragged_form,
        truth=logits,
    ),
)
