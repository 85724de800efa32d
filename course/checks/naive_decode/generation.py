"""Checks of `generate_naive`: its result, its tokens, its prompt and its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from course.checks.check import Challenge, Each, Evidence, Verdict, check, failed, passed
from course.checks.comparing import Truth, WrongChoice, first_wrong_choice, uncached
from course.checks.default_device import beside_default
from course.checks.drawing import (
    build_model,
    draw_model,
    draw_rows_with_end_next,
    draw_tokens,
    with_near_ties,
)
from course.checks.recorder import given
from course.checks.recording import RECORD, record
from course.checks.rules import wrong_device
from course.measure.counting import count_kv_rows
from course.world.tokenizer import END, PAD


def draw_request(seed: int) -> Challenge:
    """Draw a model of two layers, four prompts of one length, some of them alike, and how many tokens are
    wanted; and a long prompt. The first prompt is continued by `<end>`, a later one by `<pad>`."""
    rng = np.random.default_rng(seed)
    length, longest = int(rng.integers(4, 8)), int(rng.integers(135, 150))
    model = draw_model(rng, n_layers=2, max_seq_len=longest)
    prompts = draw_rows_with_end_next(rng, model, length)
    n_new = int(rng.integers(4, 7))
    long = draw_tokens(rng, 1, longest - 4, model["config"]["vocab_size"])
    return {**prompts, "n_new": n_new, "long": long}


# --- the result ----------------------------------------------------------------------------------


def requests_for_results(challenge: Challenge) -> list[tuple[np.ndarray, int]]:
    """List prompts and numbers of new tokens: as drawn, the smallest ones, and none."""
    prompt = challenge["prompt"]
    return [
        (prompt, challenge["n_new"]),
        (prompt[:1], 1),
        (prompt[:, :1], 1),
        (prompt, 0),
    ]


def probe_results(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Continue every prompt, and one where new tensors lie elsewhere."""
    model, short = build_model(challenge), given(challenge["prompt"][:1])
    results = [
        record(student.generate_naive(model, given(prompt), n_new))
        for prompt, n_new in requests_for_results(challenge)
    ]
    elsewhere = beside_default(lambda: student.generate_naive(model, short, 2))
    return {"results": results, "elsewhere": elsewhere}


@check(
    "generate_naive",
    draw=draw_request,
    probe=probe_results,
    evidence=lambda _: {"results": [RECORD] * 4, "elsewhere": str},
)
def result_starts_with_the_prompt(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge type and shape, and whether each row begins with its prompt."""
    requests = requests_for_results(challenge)
    for (prompt, n_new), result in zip(requests, evidence["results"], strict=True):
        if wrong := _judge_shape(challenge, prompt, n_new, result):
            return wrong
    if wrong := wrong_device("generate_naive", evidence["elsewhere"]):
        return failed(wrong)
    return passed("The prompt comes first, then as many new tokens as asked for; none for 0.")


def _judge_shape(
    challenge: Challenge, prompt: np.ndarray, n_new: int, result: Mapping[str, Any]
) -> Verdict | None:
    """Fail a result that is not the prompt and n_new further ids, or give None."""
    (B, P), tokens = prompt.shape, result["numbers"]
    case = f"A prompt of shape ({B}, {P}) with n_new={n_new}"
    if result["type"] != "int64":
        question = "What type has the prompt, and what did you put it together with?"
        if result["kind"]:
            question = "What do you return?"
        return failed(
            f"{case} gave {result['kind'] or result['type']}; expected is an int64 tensor. {question}"
        )
    if tokens.shape != (B, P + n_new):
        return failed(
            f"{case} gave shape {tokens.shape}, wanted is ({B}, {P + n_new}). "
            f"{_ask_about_shape(tokens.shape, (B, P + n_new), n_new)}"
        )
    if (tokens[:, :P] != prompt).any():
        row, t = np.argwhere(tokens[:, :P] != prompt)[0]
        return failed(
            f"{case}: in row {row}, token {t} of the prompt was {prompt[row, t]} and is "
            f"{tokens[row, t]} in the result. What stands before the first new token?"
        )
    V = challenge["config"]["vocab_size"]
    if not ((tokens >= 0) & (tokens < V)).all():
        return failed(
            f"{case}: the result holds the id {tokens[(tokens < 0) | (tokens >= V)][0]}, but ids lie "
            f"in 0 … {V - 1}. Over which axis do you take the argmax?"
        )
    return None


def _ask_about_shape(shape: tuple[int, ...], expected: tuple[int, int], n_new: int) -> str:
    if len(shape) != 2:
        return "What became of the batch's axis?"
    if shape[0] != expected[0]:
        return "Does every row get tokens of its own, and along which axis are they put behind it?"
    if shape[1] == n_new:
        return "What is in the result besides the new tokens?"
    if shape[1] < expected[1]:
        return "How often does your loop turn, and what ends it? (A text goes on after `<end>`.)"
    return "How often does your loop turn, and how many tokens does each turn add?"


# --- the tokens ----------------------------------------------------------------------------------


def another_model(challenge: Challenge) -> Challenge:
    """The challenge with the model's next words turned round: what was likeliest is it no more."""
    state = challenge["state"]
    return {**challenge, "state": {**state, "lm_head.weight": -state["lm_head.weight"]}}


def texts_to_write(challenge: Challenge) -> list[tuple[Challenge, np.ndarray, int, str]]:
    """List model, prompt and number of new tokens, each with how a message begins. Those that `<end>` and
    `<pad>` follow come later: who is wrong anyway should not be asked about these."""
    prompt, n_new = challenge["prompt"], challenge["n_new"]
    other = "The same prompt, and another model than before. "
    return [
        (challenge, prompt[:, :1], 2, "Prompts of one token. "),
        (challenge, prompt[2:3], n_new, "A batch of one row. "),
        (challenge, prompt, n_new, ""),
        (challenge, prompt[:1], n_new, "The first row alone. "),
        (another_model(challenge), prompt, n_new, other),
        (challenge, challenge["long"], 3, "A long prompt. "),
        (challenge, prompt[:1], 24, "Many new tokens. "),
        (with_near_ties(challenge), prompt, n_new, "A model with close logits. "),
    ]


def probe_tokens(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    results, built = [], build_model(challenge)
    for drawn, prompt, n_new, _ in texts_to_write(challenge):
        model = built if drawn is challenge else build_model(drawn)
        results.append(record(student.generate_naive(model, given(prompt), n_new)))
    return {"results": results}


@check(
    "generate_naive",
    draw=draw_request,
    probe=probe_tokens,
    evidence=lambda challenge: {"results": [RECORD] * len(texts_to_write(challenge))},
    truth=uncached,
)
def every_new_token_is_the_likeliest(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Judge whether every new token has the highest logit after all that stands before it."""
    texts = texts_to_write(challenge)
    for (model, prompt, n_new, case), result in zip(texts, evidence["results"], strict=True):
        if wrong := _judge_shape(challenge, prompt, n_new, result):
            return wrong
        tokens, P = result["numbers"], prompt.shape[1]
        if wrong := first_wrong_choice(truth(model, tokens), tokens, P, tolerance):
            row, step = wrong.row, wrong.step
            before = [*["…"] * (P + step > 12), *tokens[row, : P + step].tolist()[-12:]]
            return failed(
                f"{case}Row {row}, new token {step + 1} of {n_new}: you chose "
                f"{tokens[row, P + step]}, but after {' '.join(map(str, before))} the likeliest is "
                f"{wrong.likeliest}; its logit is {wrong.lead:.2g} higher (tolerance {tolerance:g}). "
                f"{_ask_about_choice(case, prompt, tokens[:, P:], wrong)}"
            )
    return passed("In every row, each new token is the likeliest after all before it.")


def _ask_about_choice(case: str, prompt: np.ndarray, new: np.ndarray, wrong: WrongChoice) -> str:
    row, step = wrong.row, wrong.step
    if "another model" in case:
        return "What does your function remember from one call to the next?"
    if "close" in case:
        return "What happens to the logits before you compare them?"
    if "long" in case:
        return "Short texts are right. How much of the text does a forward pass read?"
    if END in new[row, :step] and new[row, step] in (END, PAD):
        return "`<end>` was written before it. Is that a reason to choose otherwise?"
    if wrong.likeliest in (PAD, END):
        return "It is an id like any other. Are all of them in your choice?"
    if row > 0 and (new[row] == new[0]).all() and (prompt[row] != prompt[0]).any():
        return "Row 0 is right, and this row repeats it. Whose logits does each row need?"
    if step > 0:
        return "The first new token is right. What must the model read to choose this one?"
    return "Which position's logits, of which row, say what is next, and over which axis is the argmax?"


# --- the prompt ----------------------------------------------------------------------------------


def prompts_to_keep(challenge: Challenge) -> list[tuple[np.ndarray, int]]:
    """List prompts and numbers of new tokens; another text is written after the first."""
    prompt, n_new = challenge["prompt"], challenge["n_new"]
    return [(prompt, n_new), (prompt[::-1], n_new), (prompt, 0)]


def probe_prompt(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record whether prompts and results share memory. (That prompts are not changed, nor results by
    later calls, is recorded in every check.)"""
    model, calls = build_model(challenge), []
    for array, n_new in prompts_to_keep(challenge):
        prompt = given(array.copy())
        before = prompt.untyped_storage().data_ptr()
        result = student.generate_naive(model, prompt, n_new)
        shared = isinstance(result, Tensor) and result.untyped_storage().data_ptr() in (
            before,
            prompt.untyped_storage().data_ptr(),
        )
        calls.append({"shape": tuple(prompt.shape), "shared": shared})
    return {"calls": calls}


@check(
    "generate_naive",
    draw=draw_request,
    probe=probe_prompt,
    evidence=lambda _: {"calls": [{"shape": [int, int], "shared": bool}] * 3},
)
def prompt_is_left_alone(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether prompts kept their shape, and belong to the caller alone."""
    for (prompt, n_new), call in zip(prompts_to_keep(challenge), evidence["calls"], strict=True):
        if tuple(call["shape"]) != prompt.shape:
            return failed(
                f"n_new={n_new}: the prompt had shape {prompt.shape} before the call and has "
                f"{tuple(call['shape'])} after it. Whose tensor is it?"
            )
        if call["shared"]:
            return failed(
                f"n_new={n_new}: your result and the caller's prompt are one tensor: whoever writes "
                f"into one changes the other. What do you return when the loop never turns?"
            )
    return passed("The caller's prompt stays as it was, and the result is a tensor of its own.")


# --- the work ------------------------------------------------------------------------------------


def probe_work(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count the rows of keys of each layer and pass: for no new token, for one, for as many as drawn."""
    model, counts = build_model(challenge), []
    for n_new in (0, 1, challenge["n_new"]):
        prompt = given(challenge["prompt"])
        with count_kv_rows(model) as count:
            student.generate_naive(model, prompt, n_new)
        counts.append([list(calls) for calls in count.by_layer])
    return {"counts": counts}


@check(
    "generate_naive",
    draw=draw_request,
    probe=probe_work,
    evidence=lambda challenge: {"counts": [[Each(int)] * challenge["config"]["n_layers"]] * 3},
)
def each_step_reads_everything(
    challenge: Challenge, evidence: Evidence, truth: Callable[[int, int, int], list[int]]
) -> Verdict:
    """Compare the rows of each layer with those of one pass over everything for each new token.

    Args:
        truth: of the batch, the prompt's length and n_new: the rows of each pass.
    """
    B, P = challenge["prompt"].shape
    for n_new, by_layer in zip((0, 1, challenge["n_new"]), evidence["counts"], strict=True):
        expected = truth(B, P, n_new)
        for layer, calls in enumerate(by_layer):
            if sum(calls) != sum(expected):
                passes = f"{len(calls)} forward pass{'es' * (len(calls) != 1)}"
                return failed(
                    f"{B} rows, a prompt of {P} tokens, n_new={n_new}: layer {layer} computed keys "
                    f"for {sum(calls)} rows in {passes}; one pass over everything "
                    f"so far for each new token makes {sum(expected)} in {len(expected)}. "
                    f"{_ask_about_work(calls, expected)}"
                )
    return passed("One forward pass over everything so far for each new token, and no other.")


def _ask_about_work(calls: list[int], expected: list[int]) -> str:
    if not calls:
        return "Where do the tokens come from, if not from a forward pass of this call?"
    if len(calls) > len(expected):
        return "Which of your forward passes chooses no token?"
    if sum(calls) > sum(expected):
        return "Which tokens are fed in that the model has not even written yet?"
    return "Does every pass see the whole text so far?"
