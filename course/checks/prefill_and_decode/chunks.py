"""Check chunked prefill: the logits of the whole prompt, from chunks of the size asked for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, outcome, uncached
from course.checks.drawing import build_model, draw_model, draw_tokens
from course.checks.passes import (
    count_passes,
    largest_difference,
    new_cache,
)
from course.checks.recorder import given
from course.checks.recording import TENSOR, as_array
from course.minigpt.kv_cache import KVCache, forward_cached
from course.model import MiniGPT
from course.model.cache import CacheFull

B = 3
DEFAULT = 256
"""The chunk size that the signatures of prefill and stream name."""


def chunks_of(length: int, chunk_size: int | None) -> list[int]:
    """List the lengths of a prompt's chunks; the last may be shorter. None is the default size."""
    chunk_size = DEFAULT if chunk_size is None else chunk_size
    return [min(chunk_size, length - done) for done in range(0, length, chunk_size)]


# --- every chunk size ----------------------------------------------------------------------------


def draw_rows(rng: np.random.Generator, length: int, vocab_size: int) -> np.ndarray:
    """Draw prompts (3, P): two that differ in their last token alone, and another."""
    rows = draw_tokens(rng, B, length, vocab_size)
    rows[1, :-1] = rows[0, :-1]
    rows[1, -1] = (rows[0, -1] + 1 + int(rng.integers(vocab_size - 1))) % vocab_size
    return rows


def draw_long(rng: np.random.Generator) -> Challenge:
    """Draw a small model, and one prompt (1, P) for it that is longer than two chunks of the default."""
    model = draw_model(rng, n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8, max_seq_len=600)
    length = 2 * DEFAULT + int(rng.integers(1, 40))
    return {**model, "prompt": draw_tokens(rng, 1, length, model["config"]["vocab_size"])}


def draw_prompts(seed: int) -> Challenge:
    """Draw cases of a model, prompts (B, P) and chunk sizes. Three prompts: whole, one by one, in chunks
    with a rest or without one, in a long chunk and a short one, and None, for which prefill is called
    without a chunk size. The same prompts for another model, of float64. And a single long one."""
    rng = np.random.default_rng(seed)
    model, other = draw_model(rng, n_layers=2), draw_model(rng, n_layers=1)
    length, size = [(7, 3), (8, 3), (9, 4), (6, 3), (8, 4)][int(rng.integers(5))]
    prompt = draw_rows(rng, length, model["config"]["vocab_size"])
    sizes = [length + 2, 1, size, length - 2, None]
    long = draw_long(rng)
    return {
        "cases": [
            {**model, "prompt": prompt, "sizes": sizes, "dtype": "float32"},
            {**other, "prompt": prompt, "sizes": [size], "dtype": "float64"},
            {**long, "sizes": [long["prompt"].shape[1], None], "dtype": "float32"},
        ]
    }


def arguments_of(chunk_size: int | None) -> tuple[int, ...]:
    """Give what is passed as the chunk size: nothing for None."""
    return () if chunk_size is None else (chunk_size,)


def probe_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Prefill every case with each of its chunk sizes, and count the forward passes."""
    return {"runs": [_prefill(student, case) for case in challenge["cases"]]}


def _prefill(student: SimpleNamespace, case: Challenge) -> list[Evidence]:
    dtype, runs = getattr(torch, case["dtype"]), []
    model, prompt = build_model(case).to(dtype), given(case["prompt"])
    for size in case["sizes"]:
        cache = new_cache(case, len(prompt), prompt.shape[1] + 2, dtype)
        with count_passes(model) as passes:
            logits, stopped = logits_of(student, model, prompt, cache, size)
        run = {"logits": logits, "stopped": stopped, "passes": passes, "held": len(cache)}
        runs.append(run)
    return runs


def logits_of(
    student: SimpleNamespace, model: MiniGPT, prompt: Tensor, cache: KVCache, size: int | None
) -> tuple[np.ndarray | str, str]:
    """Prefill a prompt that fits, and return the logits; of a refusal its name, and its words, which say
    nothing of the case."""
    try:
        return as_array(student.prefill(model, prompt, cache, *arguments_of(size))), ""
    except (CacheFull, ValueError) as error:
        return type(error).__name__, str(error)[:200]


def sizes_form(challenge: Challenge) -> Evidence:
    run = {"logits": TENSOR, "stopped": str, "passes": Each(int), "held": int}
    return {"runs": [[run] * len(case["sizes"]) for case in challenge["cases"]]}


@check("prefill", draw=draw_prompts, probe=probe_sizes, evidence=sizes_form, truth=uncached)
def every_chunk_size_gives_the_same_logits(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare passes, places held and logits of every chunk size with those of the whole prompt."""
    agree: list[tuple[int, np.ndarray]] = []
    for case, runs in zip(challenge["cases"], evidence["runs"], strict=True):
        expected = truth(case, case["prompt"])[:, -1]
        for size, run in zip(case["sizes"], runs, strict=True):
            if problem := _wrong_run(case, size, run, expected, tolerance, agree):
                return problem
            agree.append((size or DEFAULT, run["logits"]))
    lengths = sorted({case["prompt"].shape[1] for case in challenge["cases"]})
    return passed(
        f"{lengths} tokens in chunks of {[n for n, _ in agree]}: always the logits of the whole prompt."
    )


STOPPED = {
    "CacheFull": "The cache is empty, of {places} places. How many does this prompt take, "
    "whatever chunk_size is?",
    "ValueError": "Is this chunk_size allowed? Has every chunk all rows and some tokens, and how often "
    "is the cache advanced for it?",
}


def _wrong_run(
    case: Challenge,
    size: int | None,
    run: Evidence,
    expected: np.ndarray,
    tolerance: float,
    agree: list[tuple[int, np.ndarray]],
) -> Verdict | None:
    rows, P = case["prompt"].shape
    chunks, logits = chunks_of(P, size), run["logits"]
    setting = "no chunk_size given" if size is None else f"chunk_size {size}"
    where = f"{rows} prompt{'s' * (rows > 1)} of {P} tokens, {setting}"
    if isinstance(logits, str) and logits in STOPPED:
        question = STOPPED[logits].format(places=P + 2)
        return failed(f"{where}: prefill stopped with {logits} ({run['stopped']}). {question}")
    if isinstance(logits, str) or logits.shape != expected.shape:
        kind = logits if isinstance(logits, str) else f"shape {logits.shape}"
        question = "Which token's logits choose the first new one?"
        if kind == f"shape {expected[0].shape}":
            question = "Where is the axis of the rows?"
        return failed(
            f"{where}: prefill gave {kind}, wanted are logits (B, V) = {expected.shape}. {question}"
        )
    if run["passes"] != chunks or run["held"] != P:
        return failed(
            f"{where}: it went in as chunks of {in_short(run['passes'])}, and the cache then holds "
            f"{run['held']} tokens; wanted are {in_short(chunks)}, and {P}. "
            f"{_about(run, chunks, size)}"
        )
    row, delta = largest_difference(logits, expected)
    if delta > tolerance:
        so_far = f" With chunk_size {agree[-1][0]} they agree." if agree else ""
        question = _question(logits, expected, chunks)
        if any(largest_difference(logits, earlier)[1] <= tolerance for _, earlier in agree):
            question = "An earlier model gave these for the same prompt. Who keeps them?"
        return failed(
            f"{where}: the last token's logits differ from those without a cache (batch row {row}, "
            f"max |Δ| {delta:.2g}, tolerance {tolerance:g}).{so_far} {question}"
        )
    if str(logits.dtype) != case["dtype"]:
        return failed(
            f"{where}, a model of {case['dtype']}: the logits are {logits.dtype}. Which of your lines "
            f"changes the type?"
        )
    return None


def in_short(passes: list[int]) -> str:
    """Write the lengths of passes; of many, the first and how many there are."""
    if len(passes) <= 12:
        return str(passes)
    return f"[{', '.join(map(str, passes[:3]))}, …] ({len(passes)} passes)"


def _about(run: Evidence, chunks: list[int], size: int | None) -> str:
    passes = run["passes"]
    if passes == chunks:
        return "What puts a chunk into the cache, and how often?"
    if sum(passes) < sum(chunks):
        return "Which tokens never entered, and why?"
    if sum(passes) > sum(chunks):
        return "Which tokens entered twice?"
    if sorted(passes) == sorted(chunks):
        return "Which chunk is the shorter one?"
    if max(passes) == 1:
        return "Does chunk_size count tokens or chunks, and how many passes does a chunk take?"
    if size is None:
        return "Which chunk_size does the signature name?"
    if len(passes) == 1:
        return "Where do you use chunk_size?"
    return "How long is each chunk, and what decides where it ends?"


def _question(logits: np.ndarray, expected: np.ndarray, chunks: list[int]) -> str:
    offset = logits.astype(np.float64) - expected
    if np.ptp(offset, axis=-1).max() < 1e-3 * np.abs(offset).max():
        return "Every row is off by one constant. What do you do with the logits at the end?"
    if np.abs(logits.sum(axis=-1) - 1).max() < 1e-3:
        return "Every row adds up to 1. What do you do with the logits at the end?"
    right = [row for row in range(len(expected)) if np.abs(offset[row]).max() < 1e-3]
    if right:
        return f"Row {right[0]} is right. What do your lines do with each row's own tokens?"
    if len(chunks) == 1:
        return "Which position of the chunk do your logits come from?"
    return (
        "Which chunk's logits come back, and which position's? And in a later chunk: at which "
        "positions do its tokens stand, and which keys may each of them see?"
    )


# --- no room -------------------------------------------------------------------------------------


def draw_full(seed: int) -> Challenge:
    """Draw a model, prompts (3, P), how many tokens of them a cache holds already, and a chunk size."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, n_layers=2)
    prompt = draw_rows(rng, int(rng.integers(8, 11)), model["config"]["vocab_size"])
    return {**model, "prompt": prompt, "held": 4, "chunk_size": int(rng.integers(2, 4))}


def probe_no_room(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Prefill what does not fit an empty cache, and one that holds some tokens; then what just fits;
    and what cannot be fed at all. Count what each call fed. What the cache holds at the end is read by
    lesson 03's function: what prefill returns is the check's above."""
    model, prompt = build_model(challenge), given(challenge["prompt"])
    (_, P), held, size = prompt.shape, challenge["held"], challenge["chunk_size"]
    small, cache, roomy = (new_cache(challenge, B, n) for n in (P - 1, P, P))

    def feed(tokens: Tensor, into: KVCache, chunk_size: int) -> Evidence:
        with count_passes(model) as passes:
            ended = outcome(lambda: student.prefill(model, tokens, into, chunk_size))
        return {"outcome": ended, "passes": passes, "held": len(into)}

    bad = prompt.clone()
    bad[-1, -1] = challenge["config"]["vocab_size"]  # an id that is none
    calls = {
        "alone": feed(prompt, small, size),
        "before": feed(prompt[:, :held], cache, size),
        "refused": feed(prompt[:, held - 1 :], cache, size),
        "exact": feed(prompt[:, held:], cache, size),
    }
    read: np.ndarray | str = "nothing"
    if len(cache) == P:
        cache.truncate(P - 1)
        read = as_array(forward_cached(model, prompt[:, P - 1 :], cache)[:, -1])
    return {
        **calls,
        "read": read,
        "arguments": [feed(prompt, roomy, 0), feed(prompt, roomy, -1), feed(bad, roomy, size)],
    }


def no_room_form(challenge: Challenge) -> Evidence:
    fed = {"outcome": str, "passes": Each(int), "held": int}
    calls = dict.fromkeys(("alone", "before", "refused", "exact"), fed)
    return {**calls, "read": TENSOR, "arguments": [fed] * 3}


def _told(call: Evidence) -> str:
    fed = "nothing was fed" if not call["passes"] else f"{in_short(call['passes'])} tokens were fed"
    ended = "prefill returned" if call["outcome"] == "returned" else call["outcome"]
    return f"{ended}; {fed}, and the cache then holds {call['held']}"


def _wrong_refusal(
    case: str, call: Evidence, error: str, held: int, question: str
) -> Verdict | None:
    """Say what is wrong with a call that should raise `error` before anything is fed."""
    if call == {"outcome": error, "passes": [], "held": held}:
        return None
    expected = f"Wanted is {error} before anything is fed, and {held} held."
    if call["outcome"] not in (error, "returned") and not call["passes"]:
        question = "By which exception is a caller to know what is wrong?"
    elif call["outcome"] == error and call["held"] == held:
        question = (
            "When can you know that the last chunk will be refused, and what was done by then?"
        )
    return failed(f"{case}: {_told(call)}. {expected} {question}")


@check("prefill", draw=draw_full, probe=probe_no_room, evidence=no_room_form, truth=uncached)
def too_long_a_prompt_changes_nothing(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    P, held, size = challenge["prompt"].shape[1], challenge["held"], challenge["chunk_size"]
    case = f"An empty cache of {P - 1} places, and prompts of {P} come in chunks of {size}"
    question = (
        "What do you compare with the limit? When can you know that the last chunk will not fit?"
    )
    if problem := _wrong_refusal(case, evidence["alone"], "CacheFull", 0, question):
        return problem
    before = evidence["before"]
    if (before["outcome"], sum(before["passes"]), before["held"]) != ("returned", held, held):
        question = "Does the check above pass?"
        if before["outcome"] == "CacheFull":
            question = f"How many places does one token take in a cache of {B} rows?"
        return failed(
            f"An empty cache of {P} places, and prompts of {held} come in chunks of {size}, which "
            f"fit: {_told(before)}. {question}"
        )
    if len(before["passes"]) == 1:
        return failed(
            f"An empty cache of {P} places, and prompts of {held} come in chunks of {size}: all {held} "
            f"tokens went in by one pass, which a cache refuses or takes as a whole. What if the first "
            f"chunk of a prompt fits, and the last one does not?"
        )
    case = f"A cache of {P} places holds {held} tokens"
    question = "How many tokens would be held after the last chunk?"
    refused = f"{case}, and prompts of {P - held + 1} come in chunks of {size}"
    if problem := _wrong_refusal(refused, evidence["refused"], "CacheFull", held, question):
        return problem
    exact = evidence["exact"]
    if exact["outcome"] != "returned":
        question = "Which is the last place that may be filled?"
        if exact["outcome"] != "CacheFull":
            question = "Which of your lines stops it?"
        return failed(
            f"{case}, and prompts of {P - held} come, which just fit: {exact['outcome']}. {question}"
        )
    case = f"{case}; prompts that do not fit are refused, and then the rest of the text follows"
    question = "If the check above passes: what did the refused call leave behind?"
    if (exact["held"], sum(exact["passes"])) != (P, P - held):
        return failed(f"{case}: {_told(exact)}. {question}")
    row, delta = largest_difference(evidence["read"], truth(challenge, challenge["prompt"])[:, -1])
    if delta > tolerance:
        return failed(
            f"{case}. Fed once more by lesson 03's forward_cached, its last token gets other logits than "
            f"without a cache (batch row {row}, max |Δ| {delta:.2g}, tolerance {tolerance:g}): the cache "
            f"holds other keys or values. {question}"
        )
    cases = ("chunk_size 0", "chunk_size -1", "An id outside the vocabulary in the last column")
    question = "Do the two lines above the gap stand where they stood?"
    for case, call in zip(cases, evidence["arguments"], strict=True):
        if problem := _wrong_refusal(case, call, "ValueError", 0, question):
            return problem
    return passed(
        "A prompt that does not fit is refused before anything is fed; one that just fits is taken."
    )
