"""Check chunked prefill: the logits of the whole prompt, from chunks of the size asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, outcome, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_tokens
from course.config import GPTConfig
from course.minigpt.kv_cache import KVCache
from course.model import MiniGPT

B = 3


def new_cache(challenge: Challenge, max_len: int) -> KVCache:
    """Make lesson 03's cache for the challenge's model and a batch of 3."""
    return KVCache(GPTConfig(**challenge["config"]), batch=B, max_len=max_len)


@contextmanager
def count_passes(model: MiniGPT) -> Iterator[list[int]]:
    """Count the tokens of each row that enter each forward pass inside the `with` block."""
    passes: list[int] = []
    hook = model.embed.register_forward_pre_hook(
        lambda _, inputs: passes.append(inputs[0].shape[-1])
    )
    try:
        yield passes
    finally:
        hook.remove()


def chunks_of(length: int, chunk_size: int | None) -> list[int]:
    """List the lengths of a prompt's chunks; the last may be shorter. None is the default size, into
    which every prompt of the checks fits."""
    chunk_size = length if chunk_size is None else chunk_size
    return [min(chunk_size, length - done) for done in range(0, length, chunk_size)]


def as_array(value: Any) -> np.ndarray | str:
    """Turn a tensor into an array; describe anything else in words."""
    return value.detach().numpy() if isinstance(value, Tensor) else f"a {type(value).__name__}"


ARRAY_OR_WORDS = (np.ndarray, str)
"""The form of what `as_array` returns."""


def largest_difference(got: np.ndarray | str, wanted: np.ndarray) -> tuple[int, float]:
    """Find the row of (B, V) logits that differs most, and by how much: infinitely where numbers are
    not finite, or not (B, V)."""
    if isinstance(got, str) or got.shape != wanted.shape:
        return 0, np.inf
    delta = np.abs(got.astype(np.float64) - wanted).max(axis=-1)
    delta[~np.isfinite(delta)] = np.inf
    row = int(delta.argmax())
    return row, float(delta[row])


# --- every chunk size ----------------------------------------------------------------------------


def draw_prompt(seed: int) -> Challenge:
    """Draw a model, prompts (3, P), and chunk sizes: whole, one by one, with a rest, without one; and
    None, for which prefill is called without a chunk size."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    length, size = [(7, 3), (8, 3), (10, 4), (11, 4), (9, 4)][int(rng.integers(5))]
    prompt = draw_tokens(rng, B, length, challenge["config"]["vocab_size"])
    return {**challenge, "prompt": prompt, "sizes": [length, 1, 2, size, length + 2, None]}


def arguments_of(chunk_size: int | None) -> tuple[int, ...]:
    """Give what is passed as the chunk size: nothing for None."""
    return () if chunk_size is None else (chunk_size,)


def probe_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Prefill with each chunk size, and count the forward passes."""
    evidence: Evidence = {"logits": [], "passes": [], "held": []}
    for size in challenge["sizes"]:
        model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
        cache = new_cache(challenge, prompt.shape[1] + 2)
        with count_passes(model) as passes:
            logits = student.prefill(model, prompt, cache, *arguments_of(size))
        evidence["logits"].append(as_array(logits))
        evidence["passes"].append(passes)
        evidence["held"].append(len(cache))
    return evidence


def sizes_form(challenge: Challenge) -> Evidence:
    n = len(challenge["sizes"])
    return {"logits": [ARRAY_OR_WORDS] * n, "passes": [Each(int)] * n, "held": [int] * n}


def judge_sizes(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare passes, places held and logits of every chunk size with those of the whole prompt."""
    wanted, P = truth(challenge, challenge["prompt"])[:, -1], challenge["prompt"].shape[1]
    agree: list[list[int]] = []
    for size, logits, passes, held in zip(
        challenge["sizes"],
        evidence["logits"],
        evidence["passes"],
        evidence["held"],
        strict=True,
    ):
        given = "no chunk_size given" if size is None else f"chunk_size {size}"
        case, chunks = f"A prompt of {P} tokens, {given}", chunks_of(P, size)
        if isinstance(logits, str) or logits.shape != wanted.shape:
            kind = logits if isinstance(logits, str) else f"shape {logits.shape}"
            return failed(
                f"{case}: prefill gave {kind}, wanted are logits (B, V) = {wanted.shape}. Which "
                f"token's logits choose the first new one?"
            )
        if passes != chunks or held != P:
            return failed(
                f"{case}: it went in as chunks of {passes}, and the cache then holds {held} "
                f"tokens; wanted are {chunks}, and {P}. {_about(passes, chunks, size)}"
            )
        row, delta = largest_difference(logits, wanted)
        if delta > tolerance:
            so_far = f" Chunks of {agree[-1]} agree." if agree else ""
            return failed(
                f"{case}: the last token's logits differ from those without a cache (batch row "
                f"{row}, max |Δ| {delta:.2g}, tolerance {tolerance:g}).{so_far} "
                f"{_question(chunks)}"
            )
        agree.append(chunks)
    return passed(f"{P} tokens in chunks of {agree}: every time the logits of the whole prompt.")


def _about(passes: list[int], chunks: list[int], size: int | None) -> str:
    if passes == chunks:
        return "What puts a chunk into the cache, and how often?"
    if sum(passes) < sum(chunks):
        return "Which tokens never entered, and why?"
    if sum(passes) > sum(chunks):
        return "Which tokens entered twice?"
    if size is None:
        return "Which chunk_size does the signature name?"
    return "What decides where your chunks end?"


def _question(chunks: list[int]) -> str:
    if len(chunks) == 1:
        return "Which position of the chunk do your logits come from?"
    return (
        "Which chunk's logits come back? And in a later chunk: at which positions do its tokens "
        "stand, and which keys may each of them see?"
    )


every_chunk_size_gives_the_same_logits = Check(
    "every_chunk_size_gives_the_same_logits",
    ("prefill",),
    draw_prompt,
    probe_sizes,
    judge_sizes,
    evidence=sizes_form,
    truth=uncached,
    tolerance=TOLERANCE,
)

# --- no room -------------------------------------------------------------------------------------


def probe_no_room(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Prefill what does not fit an empty cache, and one that holds 3 tokens; then what just fits."""
    model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
    P = prompt.shape[1]
    small, cache = new_cache(challenge, P - 1), new_cache(challenge, P)
    evidence: Evidence = {
        "alone": outcome(lambda: student.prefill(model, prompt, small, 2)),
        "alone_held": len(small),
    }
    student.prefill(model, prompt[:, :3], cache, 2)
    evidence["before"] = len(cache)
    evidence["refused"] = outcome(lambda: student.prefill(model, prompt[:, : P - 2], cache, 2))
    evidence["held"] = len(cache)
    rest: list[np.ndarray | str] = []
    evidence["exact"] = outcome(
        lambda: rest.append(as_array(student.prefill(model, prompt[:, 3:], cache, 2)))
    )
    evidence["sizes"] = [
        outcome(lambda size=size: student.prefill(model, prompt, cache, size)) for size in (0, -1)
    ]
    return {**evidence, "rest": rest}


def no_room_form(challenge: Challenge) -> Evidence:
    return {
        "alone": str,
        "alone_held": int,
        "before": int,
        "refused": str,
        "held": int,
        "exact": str,
        "sizes": [str] * 2,
        "rest": Each(ARRAY_OR_WORDS),
    }


def _about_refusal(evidence: Evidence) -> str:
    if evidence["alone_held"]:
        return "When can you know that the last chunk will not fit?"
    return "By which exception does a caller know that it is the room that is missing?"


def judge_no_room(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    P = challenge["prompt"].shape[1]
    if evidence["alone"] != "CacheFull" or evidence["alone_held"] != 0:
        return failed(
            f"An empty cache of {P - 1} places, and a prompt of {P} comes in chunks of 2: "
            f"{evidence['alone']}, and then it holds {evidence['alone_held']}. Wanted is "
            f"CacheFull, and 0. {_about_refusal(evidence)}"
        )
    case = f"A cache of {P} places holds 3 tokens"
    if evidence["before"] != 3:
        return failed(
            f"3 tokens were fed in chunks of 2, and the cache holds {evidence['before']}. Does "
            f"the check above pass?"
        )
    if evidence["refused"] != "CacheFull" or evidence["held"] != 3:
        return failed(
            f"{case}, and a prompt of {P - 2} comes in chunks of 2: {evidence['refused']}, and "
            f"then it holds {evidence['held']}. Wanted is CacheFull, and 3 still. How many tokens "
            f"would be held after the last chunk?"
        )
    if evidence["exact"] != "returned":
        return failed(
            f"{case}, and a prompt of {P - 3} comes, which just fits: {evidence['exact']}. "
            f"Which is the last place that may be filled?"
        )
    (rest,) = evidence["rest"]
    wanted = truth(challenge, challenge["prompt"])[:, -1]
    row, delta = largest_difference(rest, wanted)
    if delta > tolerance:
        return failed(
            f"{case}; a prompt that does not fit is refused, and then the rest of the text "
            f"follows: its last logits differ from the uncached ones (batch row {row}, max |Δ| "
            f"{delta:.2g}, tolerance {tolerance:g}). What did the refused call leave behind?"
        )
    if evidence["sizes"] != ["ValueError", "ValueError"]:
        return failed(
            f"chunk_size 0 and -1: {evidence['sizes']}, wanted is ValueError, as the lines "
            f"above the gap have it."
        )
    return passed(
        "A prompt that does not fit is refused before anything is stored; one that just fits "
        "is taken."
    )


too_long_a_prompt_changes_nothing = Check(
    "too_long_a_prompt_changes_nothing",
    ("prefill",),
    draw_prompt,
    probe_no_room,
    judge_no_room,
    evidence=no_room_form,
    truth=uncached,
    tolerance=TOLERANCE,
)
