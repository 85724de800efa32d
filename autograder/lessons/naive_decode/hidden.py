"""The hidden checks of lesson 02: tokens against the oracle, counts against drawn-out steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from autograder import oracle
from autograder.lessons.naive_decode import probes
from course.checks import naive_decode as visible
from course.checks.calls import Case, call, drawn
from course.checks.check import Challenge, Evidence, Verdict, by_name, failed
from course.checks.naive_decode.generation import draw_request
from course.checks.recording import RECORD
from course.checks.tolerance import TOLERANCE


def oracle_logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute logits (B, T, V) in float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


# --- the text is the model's ----------------------------------------------------------------------


def results_form(challenge: Challenge) -> Evidence:
    return {**visible.result_starts_with_the_prompt.evidence(challenge), "other": RECORD}


def judge_results(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge as the visible check does; then whether another model writes another text."""
    verdict = visible.result_starts_with_the_prompt.verdict(challenge, evidence)
    if verdict.score < 1:
        return verdict
    return same_by_another(challenge, evidence["results"][0], evidence["other"]) or verdict


def same_by_another(challenge: Challenge, text: Evidence, other: Evidence) -> Verdict | None:
    """Fail a text that two models which disagree about every next token write alike, or give None."""
    if wrong := rows_missing(challenge, text) or rows_missing(challenge, other):
        return wrong
    if not text["kind"] and not np.array_equal(text["numbers"], other["numbers"]):
        return None
    return failed(
        f"A prompt of shape {challenge['prompt'].shape} with n_new={challenge['n_new']} gave "
        f"{text['kind'] or 'one and the same text'}, by two models of which one has its likeliest token "
        f"where the other has its least likely. Who chooses the new tokens?"
    )


def rows_missing(challenge: Challenge, text: Evidence) -> Verdict | None:
    """Fail a tensor that has not several tokens for each row of the prompt, or give None. Whether it has
    as many as it should is asked elsewhere."""
    B, _ = challenge["prompt"].shape
    shape = text["numbers"].shape
    if text["kind"] or (shape[:1] == (B,) and text["numbers"].size > B):
        return None
    return failed(
        f"A prompt of shape {challenge['prompt'].shape} with n_new={challenge['n_new']} gave shape "
        f"{shape}. Where are the tokens of each row?"
    )


def prompt_form(challenge: Challenge) -> Evidence:
    visible_form = visible.prompt_is_left_alone.evidence(challenge)
    return {**visible_form, **dict.fromkeys(("text", "continued", "other"), RECORD)}


def judge_prompt(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge as the visible check does; then whether a text was written meanwhile: by the model, and so
    that each new token is read before the next. Whether it is the right one is asked elsewhere."""
    verdict = visible.prompt_is_left_alone.verdict(challenge, evidence)
    if verdict.score < 1:
        return verdict
    text, continued = evidence["text"], evidence["continued"]
    if wrong := same_by_another(challenge, text, evidence["other"]):
        return wrong
    if wrong := rows_missing(challenge, continued):
        return wrong
    # Where the texts have other shapes, result_starts_with_the_prompt says so.
    together, apart = text["numbers"], continued["numbers"]
    if together.shape == apart.shape and (together != apart).any():
        row, place = np.argwhere(together != apart)[0].tolist()
        g, P = challenge["n_new"], challenge["prompt"].shape[1]
        return failed(
            f"The prompt is left alone; but {g} new tokens in one call, and 1 and then {g - 1} in two, "
            f"are different texts: row {row}, new token {place - P + 1}, is {together[row, place]} and "
            f"{apart[row, place]}. What has the model read when it chooses that token?"
        )
    return verdict


# --- the work -------------------------------------------------------------------------------------


def draw_passes(seed: int) -> Challenge:
    """Draw the visible challenge, and for each forward pass the weights that it finds: keys and values
    of the first layer, and the head, are others every time."""
    challenge = draw_request(seed)
    rng, state = np.random.default_rng([seed, 1]), challenge["state"]
    names = ("blocks.0.attn.wk.weight", "blocks.0.attn.wv.weight", "lm_head.weight")
    passes = [
        {name: rng.permutation(state[name].ravel()).reshape(state[name].shape) for name in names}
        for _ in range(challenge["n_new"])
    ]
    return {**challenge, "passes": passes}


def passes_form(challenge: Challenge) -> Evidence:
    counts = visible.each_step_reads_everything.evidence(challenge)
    return {**counts, "exchanged": RECORD}


def rows_of_passes(batch: int, prompt_len: int, n_new: int) -> list[int]:
    """Count the rows of each pass over everything so far."""
    return [batch * len(read) for read in rows_by_step(prompt_len, n_new)]


def judge_passes(
    challenge: Challenge,
    evidence: Evidence,
    truth: Callable[[int, int, int], list[int]],
    tolerance: float,
) -> Verdict:
    """Judge the counts; then whether each new token is the likeliest by the weights of its own pass."""
    verdict = visible.each_step_reads_everything.verdict(challenge, evidence, truth)
    if verdict.score < 1:
        return verdict
    prompt, passes = challenge["prompt"][:1], challenge["passes"]
    case = "A model whose weights are exchanged for others after every forward pass"
    P, text = prompt.shape[1], evidence["exchanged"]["numbers"]
    if text.shape != (1, P + len(passes)) or (text[:, :P] != prompt).any():
        return failed(f"{case}: the result does not begin with the prompt, or has another length.")
    for step, weights in enumerate(passes):
        now = {**challenge, "state": {**challenge["state"], **weights}}
        last = oracle_logits(now, text[:, : P + step])[0, -1]  # (V,)
        if last.max() - last[text[0, P + step]] > tolerance:
            return failed(
                f"{case}: new token {step + 1} is {text[0, P + step]}; by the weights of pass "
                f"{step + 1}, over everything so far, it is {last.argmax()}. How many passes come "
                f"before it, does its own read the whole text, and which position of it chooses?"
            )
    return verdict


# --- the counts -----------------------------------------------------------------------------------


def draw_counts(function: str, rng: np.random.Generator) -> Iterator[Case]:
    """Draw prompt and new tokens: a single new one, then more and more, up to a sum that float32 does not
    hold, then none at all."""
    # Even and odd numbers of steps: a triangle that is rounded may be right for one of them.
    sizes = [(int(rng.integers(2, 60)), 2 * int(rng.integers(1, 20)) + odd) for odd in (0, 1) * 2]
    sizes += [
        (int(rng.integers(1100, 3000)), int(rng.integers(1000, 1200))),
        (1, int(rng.integers(2, 9))),
        (2 * int(rng.integers(2400, 2600)) + 1, 4 * int(rng.integers(1000, 1100)) + 1),
    ]
    few = (int(rng.integers(2, 9)), 1)
    for tokens in (few, *sorted(sizes, key=sum), (1, 1), (int(rng.integers(2, 9)), 0), (1, 0)):
        yield call(function, *tokens)


def rows_by_step(p: int, g: int) -> list[range]:
    """List for each step the positions of the tokens that are read."""
    text, steps = range(p), []
    for _ in range(g):
        steps.append(text)
        text = range(len(text) + 1)
    return steps


def naive_rows(p: int, g: int) -> int:
    """Count all rows of all steps."""
    return sum(len(step) for step in rows_by_step(p, g))


def needed_rows(p: int, g: int) -> int:
    """Count every row once."""
    counted = np.zeros(p + g, dtype=bool)
    for step in rows_by_step(p, g):
        counted[step.start : step.stop] = True
    return int(counted.sum())


def visits(prompt_len: int, n_new: int) -> int:
    """Count what the last token of each step may look at: everything up to itself."""
    return sum(step[-1] + 1 for step in rows_by_step(prompt_len, n_new))


CHECKS = by_name(
    visible.result_starts_with_the_prompt.hidden(
        probe=probes.result_starts_with_the_prompt, evidence=results_form, verdict=judge_results
    ),
    visible.every_new_token_is_the_likeliest.hidden(truth=oracle_logits),
    visible.prompt_is_left_alone.hidden(
        probe=probes.prompt_is_left_alone, evidence=prompt_form, verdict=judge_prompt
    ),
    visible.bad_requests_are_refused,
    visible.each_step_reads_everything.hidden(
        challenge=draw_passes,
        probe=probes.each_step_reads_everything,
        evidence=passes_form,
        verdict=judge_passes,
        truth=rows_of_passes,
        tolerance=TOLERANCE,
    ),
    visible.naive_rows_add_up.hidden(
        challenge=drawn(partial(draw_counts, "kv_rows_naive")), truth=naive_rows
    ),
    visible.needed_rows_add_up.hidden(
        challenge=drawn(partial(draw_counts, "kv_rows_needed")), truth=needed_rows
    ),
    visible.visits_add_up.hidden(
        challenge=drawn(partial(draw_counts, "attention_visits")), truth=visits
    ),
)
