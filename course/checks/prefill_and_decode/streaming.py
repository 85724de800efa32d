"""Check streaming: the uncached text, a token for each one asked for, from a cache that may go back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Check, Each, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, outcome, uncached
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_tokens
from course.checks.prefill_and_decode.chunks import B, arguments_of, count_passes, new_cache

CHUNK = 3


def draw_request(seed: int) -> Challenge:
    """Draw a model, prompts (3, P), and how many tokens are wanted."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    length, n_new = int(rng.integers(4, 8)), int(rng.integers(3, 6))
    prompt = draw_tokens(rng, B, length, challenge["config"]["vocab_size"])
    return {**challenge, "prompt": prompt, "n_new": n_new}


def record(tokens: Iterable[Any]) -> Evidence:
    """Read a stream to its end: the kind of each token, and the numbers (B, n) of those that are
    int64 and (B,)."""
    kinds, columns = [], []
    for token in tokens:
        if not isinstance(token, Tensor):
            kinds.append(type(token).__name__)
            continue
        kinds.append(f"{token.dtype} {tuple(token.shape)}")
        if token.dtype == torch.int64 and tuple(token.shape) == (B,):
            columns.append(token.clone())
    text = torch.stack(columns, dim=1) if columns else torch.zeros(B, 0, dtype=torch.int64)
    return {"kinds": kinds, "tokens": text.numpy()}


STREAM = {"kinds": Each(str), "tokens": np.ndarray}
"""The form of what `record` returns."""


def wrong_text(
    case: str,
    challenge: Challenge,
    prompt: np.ndarray,
    n_new: int,
    recorded: Evidence,
    truth: Truth,
    tolerance: float,
) -> Verdict | None:
    """Say what is wrong with a stream of tokens that should continue the text `prompt` (B, P)."""
    kinds, tokens = recorded["kinds"], recorded["tokens"]
    if len(kinds) != n_new:
        return failed(f"{case}: {len(kinds)} tokens came out. How many does each turn yield?")
    wanted = f"torch.int64 ({B},)"
    if any(kind != wanted for kind in kinds):
        return failed(
            f"{case}: the tokens that come out are {sorted(set(kinds))}, wanted is {wanted}: one id "
            f"for each row of the batch."
        )
    V, P = challenge["config"]["vocab_size"], prompt.shape[1]
    if tokens.shape != (B, n_new) or tokens.min() < 0 or tokens.max() >= V:
        return failed(f"{case}: ids of shape {tokens.shape} came out, not all within 0 … {V - 1}.")
    text = np.concatenate([prompt, tokens], axis=1)
    wrong = first_wrong_choice(truth(challenge, text), text, P, tolerance)
    if wrong:
        return failed(
            f"{case}: batch row {wrong.row}, new token {wrong.step + 1}, is "
            f"{text[wrong.row, P + wrong.step]}; without a cache it is {wrong.likeliest}, whose "
            f"logit leads by {wrong.lead:.2g}. What had been fed when it was chosen?"
        )
    return None


def start(student: SimpleNamespace, *arguments: Any, chunk_size: int | None = CHUNK) -> Any:
    """Start the student's stream, as an iterator whatever it is; None for its own chunk size."""
    tokens = student.stream(*arguments, *arguments_of(chunk_size))
    if not isinstance(tokens, Iterable):
        raise TypeError(f"stream gave {tokens!r}, from which no tokens come. Does it yield?")
    return iter(tokens)


# --- the text ------------------------------------------------------------------------------------


def probe_text(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Stream n_new tokens, one and none, and ask for one more each time."""
    model, n_new = build_model(challenge), challenge["n_new"]
    evidence: Evidence = {}
    for name, n in (("text", n_new), ("one", 1), ("none", 0)):
        prompt = torch.from_numpy(challenge["prompt"].copy())
        cache = new_cache(challenge, prompt.shape[1] + n_new)
        evidence[name] = record(islice(start(student, model, prompt, n, cache), n + 1))
    return evidence


def text_form(challenge: Challenge) -> Evidence:
    return {"text": STREAM, "one": STREAM, "none": STREAM}


def judge_text(challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float) -> Verdict:
    prompt, n_new = challenge["prompt"], challenge["n_new"]
    for name, n in (("one", 1), ("text", n_new)):
        case = f"A prompt (B, P) = {prompt.shape} and n_new = {n}"
        problem = wrong_text(case, challenge, prompt, n, evidence[name], truth, tolerance)
        if problem:
            return problem
    if evidence["none"]["kinds"] or evidence["none"]["tokens"].shape != (B, 0):
        return failed(
            f"n_new = 0: {len(evidence['none']['kinds'])} tokens came out. Who asked for one?"
        )
    return passed(f"{n_new} tokens for each of {B} rows, the ones that the uncached model writes.")


stream_writes_the_uncached_text = Check(
    "stream_writes_the_uncached_text",
    ("stream",),
    draw_request,
    probe_text,
    judge_text,
    evidence=text_form,
    truth=uncached,
    tolerance=TOLERANCE,
)

# --- when the work is done -----------------------------------------------------------------------


def probe_laziness(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record the forward passes so far, as tokens a pass: before the first token is asked for, when
    each came out, and when the stream has ended; and those of the first token of another stream, for
    which no chunk size is given."""
    model, prompt = build_model(challenge), torch.from_numpy(challenge["prompt"].copy())
    P, n_new = prompt.shape[1], challenge["n_new"]
    cache = new_cache(challenge, P + n_new)
    with count_passes(model) as passes:
        tokens = start(student, model, prompt, n_new, cache, chunk_size=P)
        so_far = [list(passes)]
        given = 0
        for _ in range(n_new + 1):
            given += next(tokens, None) is not None
            so_far.append(list(passes))
    model, other = build_model(challenge), new_cache(challenge, P + n_new)
    with count_passes(model) as passes:
        next(start(student, model, prompt, n_new, other, chunk_size=None), None)
    return {"passes": so_far, "given": given, "held": len(cache), "by_default": list(passes)}


def laziness_form(challenge: Challenge) -> Evidence:
    return {
        "passes": [Each(int)] * (challenge["n_new"] + 2),
        "given": int,
        "held": int,
        "by_default": Each(int),
    }


def judge_laziness(challenge: Challenge, evidence: Evidence) -> Verdict:
    P, n_new = challenge["prompt"].shape[1], challenge["n_new"]
    case = f"A prompt of {P} tokens as one chunk, n_new = {n_new}"
    wanted = [[], *([P] + [1] * step for step in range(n_new)), [P] + [1] * (n_new - 1)]
    questions = {
        0: "Who asked for a token yet?",
        1: "Which pass knows the first new token?",
        n_new + 1: "Who reads the logits of the last pass?",
    }
    for moment, (passes, want) in enumerate(zip(evidence["passes"], wanted, strict=True)):
        when = "before a token is asked for" if moment == 0 else f"when token {moment} comes out"
        if moment == n_new + 1:
            when = "when the stream has ended"
        if passes != want:
            question = questions.get(moment, "Which of these passes was asked for?")
            return failed(
                f"{case}: {when}, the forward passes so far had {passes} tokens each, wanted is "
                f"{want}. {question}"
            )
    if evidence["given"] != n_new or evidence["held"] != P + n_new - 1:
        return failed(
            f"{case}: {evidence['given']} tokens came out, and the cache then holds "
            f"{evidence['held']}; wanted are {n_new} and {P + n_new - 1}. Which token is never fed?"
        )
    if evidence["by_default"] != [P]:
        return failed(
            f"A prompt of {P} tokens, no chunk_size given: when token 1 comes out, the forward passes "
            f"so far had {evidence['by_default']} tokens each, wanted is {[P]}. Which chunk_size does "
            f"the signature name?"
        )
    return passed(
        "The first token comes from the prefill alone, every other from one step, and no step is "
        "run before its token is asked for."
    )


no_step_before_it_is_asked_for = Check(
    "no_step_before_it_is_asked_for",
    ("stream",),
    draw_request,
    probe_laziness,
    judge_laziness,
    evidence=laziness_form,
)

# --- going back ----------------------------------------------------------------------------------


def draw_edit(seed: int) -> Challenge:
    """Draw a model, and two prompts (3, ·) that begin alike: what they share, and how each ends. The
    second is the longer one, and fills the cache to its last place."""
    rng = np.random.default_rng(seed)
    challenge = draw_model(rng)
    V = challenge["config"]["vocab_size"]
    shared, n_new = int(rng.integers(3, 6)), int(rng.integers(3, 5))
    first = n_new + int(rng.integers(0, 2))  # so long that what is cut off would not fit as well
    lengths = {"shared": shared, "first": first, "second": first + int(rng.integers(1, 3))}
    parts = {name: draw_tokens(rng, B, n, V) for name, n in lengths.items()}
    return {**challenge, **parts, "n_new": n_new}


def probe_edit(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Stream the first text, cut the cache back to what both share, and stream the second."""
    model, n_new = build_model(challenge), challenge["n_new"]
    shared, first, second = (
        torch.from_numpy(challenge[name].copy()) for name in ("shared", "first", "second")
    )
    n_shared = shared.shape[1]
    cache = new_cache(challenge, n_shared + second.shape[1] + n_new - 1)
    text = torch.cat([shared, first], dim=1)
    before = record(islice(start(student, model, text, n_new, cache), n_new + 1))
    cache.truncate(min(n_shared, len(cache)))
    after: list[Evidence] = []
    came = outcome(lambda: after.append(record(start(student, model, second, n_new, cache))))
    return {"before": before, "came": came, "after": after, "held": len(cache)}


def edit_form(challenge: Challenge) -> Evidence:
    return {"before": STREAM, "came": str, "after": Each(STREAM), "held": int}


def judge_edit(challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float) -> Verdict:
    shared, n_new = challenge["shared"], challenge["n_new"]
    first, second = (
        np.concatenate([shared, challenge[name]], axis=1) for name in ("first", "second")
    )
    k, wanted = shared.shape[1], second.shape[1] + n_new - 1
    case = f"A prompt of {first.shape[1]} tokens, n_new = {n_new}"
    problem = wrong_text(case, challenge, first, n_new, evidence["before"], truth, tolerance)
    if problem:
        return problem
    case = (
        f"A text was streamed, the cache (of {wanted} places) cut back to its first {k} tokens, "
        f"and a prompt of {second.shape[1] - k} goes on from there, n_new = {n_new}"
    )
    if evidence["came"] != "returned":
        return failed(f"{case}: {evidence['came']}. Who knows how many tokens are held now?")
    (after,) = evidence["after"]
    problem = wrong_text(case, challenge, second, n_new, after, truth, tolerance)
    if problem:
        return problem
    if evidence["held"] != wanted:
        return failed(
            f"{case}: the cache holds {evidence['held']} tokens at the end, wanted are {wanted}. "
            f"Which cache do you fill, and from which place on?"
        )
    return passed(
        f"Cut back to the {k} tokens that both share, the edited prompt is continued as if the "
        f"first had never been."
    )


rollback_equals_a_fresh_start = Check(
    "rollback_equals_a_fresh_start",
    ("stream",),
    draw_edit,
    probe_edit,
    judge_edit,
    evidence=edit_form,
    truth=uncached,
    tolerance=TOLERANCE,
)
