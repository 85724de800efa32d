"""The visible checks of lesson 02. Their truth is the model of lesson 01, or a hand-counted table.

The makers are shared with the hidden checks, which bring another truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.comparing import Truth, first_wrong_choice, uncached
from course.checks.counts import Sizes, count_check
from course.checks.drawing import TOLERANCE, build_model, draw_model, draw_tokens
from course.measure.counting import count_kv_rows

NEEDS = ("generate_naive",)
Draw = Callable[[np.random.Generator], list[Sizes]]


def draw_request(seed: int) -> Challenge:
    """A model, three different prompts of one length, and how many tokens are wanted."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(4, 8))
    model = draw_model(rng)
    prompt = draw_tokens(rng, 3, length, model["config"]["vocab_size"])
    return {**model, "prompt": prompt, "n_new": int(rng.integers(4, 7))}


def record(value: Any) -> dict[str, Any]:
    """What `generate_naive` returned: its kind, and its numbers if it is a tensor of them."""
    if not isinstance(value, Tensor):
        return {"kind": type(value).__name__, "tokens": None}
    return {"kind": str(value.dtype), "tokens": value.detach().cpu().numpy()}


# --- the result ----------------------------------------------------------------------------------


def probe_result(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, n_new = build_model(challenge), challenge["n_new"]
    results = []
    for batch, n in ((3, n_new), (1, 1), (3, 0)):
        prompt = torch.tensor(challenge["prompt"][:batch])
        results.append({"n_new": n, **record(student.generate_naive(model, prompt, n))})
    return {"results": results}


def judge_result(challenge: Challenge, evidence: Evidence) -> Verdict:
    for batch, result in zip((3, 1, 3), evidence["results"], strict=True):
        prompt = challenge["prompt"][:batch]
        verdict = _judge_shape(challenge, prompt, result)
        if verdict:
            return verdict
    return passed("The prompt comes first, then as many new tokens as asked for; none for 0.")


def _judge_shape(
    challenge: Challenge, prompt: np.ndarray, result: Mapping[str, Any]
) -> Verdict | None:
    (B, P), n = prompt.shape, result["n_new"]
    case, tokens = f"A prompt of shape ({B}, {P}) with n_new={n}", result["tokens"]
    if result["kind"] != "torch.int64":
        return failed(
            f"{case} gave {result['kind']}; wanted is a torch.int64 tensor. "
            f"What type has the prompt, and what did you put it together with?"
        )
    if tokens.shape != (B, P + n):
        return failed(
            f"{case} gave shape {tokens.shape}, wanted is ({B}, {P + n}). "
            f"{_ask_about_shape(tokens.shape, n)}"
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


def _ask_about_shape(shape: tuple[int, ...], n_new: int) -> str:
    if len(shape) != 2:
        return "What became of the batch's axis?"
    if shape[1] == n_new:
        return "What is in the result besides the new tokens?"
    return "How often does your loop turn, and how many tokens does each turn add?"


result_starts_with_the_prompt = Check(
    "result_starts_with_the_prompt", NEEDS, draw_request, probe_result, judge_result
)

# --- the tokens ----------------------------------------------------------------------------------


def probe_tokens(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    prompt = torch.tensor(challenge["prompt"])
    return record(student.generate_naive(build_model(challenge), prompt, challenge["n_new"]))


def make_likeliest_tokens(truth: Truth) -> Check:
    """Every new token has, after all that stands before it, the highest logit."""

    def verdict(challenge: Challenge, evidence: Evidence) -> Verdict:
        prompt, n_new = challenge["prompt"], challenge["n_new"]
        wrong = _judge_shape(challenge, prompt, {"n_new": n_new, **evidence})
        return wrong or _judge_tokens(prompt, n_new, evidence["tokens"], truth, challenge)

    return Check("every_new_token_is_the_likeliest", NEEDS, draw_request, probe_tokens, verdict)


def _judge_tokens(
    prompt: np.ndarray, n_new: int, tokens: np.ndarray, truth: Truth, challenge: Challenge
) -> Verdict:
    P = prompt.shape[1]
    wrong = first_wrong_choice(truth(challenge, tokens), tokens, P)
    if wrong:
        row, step = wrong.row, wrong.step
        return failed(
            f"Row {row}, new token {step + 1} of {n_new}: you chose {tokens[row, P + step]}, but "
            f"after {tokens[row, : P + step].tolist()} the likeliest is {wrong.likeliest}; its logit "
            f"is {wrong.lead:.2f} higher (tolerance {TOLERANCE:g}). "
            f"{_question(tokens[:, P:], row, step)}"
        )
    return passed("In every row, each new token is the likeliest after all before it.")


def _question(new: np.ndarray, row: int, step: int) -> str:
    if row > 0 and (new[row] == new[0]).all():
        return "Row 0 is right, and this row repeats it. Whose logits does each row need?"
    if step > 0:
        return "The first new token is right. What must the model read to choose this one?"
    return "Which position's logits say what comes next, and over which axis is the argmax?"


every_new_token_is_the_likeliest = make_likeliest_tokens(uncached)

# --- the prompt ----------------------------------------------------------------------------------


def probe_prompt(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, calls = build_model(challenge), []
    for n_new in (challenge["n_new"], 0):
        prompt = torch.tensor(challenge["prompt"])
        before = prompt.untyped_storage().data_ptr()
        result = student.generate_naive(model, prompt, n_new)
        shared = isinstance(result, Tensor) and result.untyped_storage().data_ptr() in (
            before,
            prompt.untyped_storage().data_ptr(),
        )
        calls.append({"n_new": n_new, "prompt": prompt.numpy().copy(), "shared": shared})
    return {"calls": calls}


def judge_prompt(challenge: Challenge, evidence: Evidence) -> Verdict:
    prompt = challenge["prompt"]
    for call in evidence["calls"]:
        case, after = f"n_new={call['n_new']}", call["prompt"]
        if after.shape != prompt.shape:
            return failed(
                f"{case}: the prompt had shape {prompt.shape} before the call and has {after.shape} "
                f"after it. Whose tensor is it?"
            )
        if (after != prompt).any():
            row, t = np.argwhere(after != prompt)[0]
            return failed(
                f"{case}: token {t} of row {row} of the prompt was {prompt[row, t]} and is "
                f"{after[row, t]} after the call. Which line writes into it?"
            )
        if call["shared"]:
            return failed(
                f"{case}: your result and the caller's prompt are one tensor: whoever writes into "
                f"one changes the other. What do you return when the loop never turns?"
            )
    return passed("The caller's prompt stays as it was, and the result is a tensor of its own.")


prompt_is_left_alone = Check(
    "prompt_is_left_alone", NEEDS, draw_request, probe_prompt, judge_prompt
)

# --- bad requests --------------------------------------------------------------------------------


def draw_bad_requests(seed: int) -> Challenge:
    """Requests that must be refused, each with the words of which one must stand in the message,
    and one that fits exactly."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(14, 20))
    model = draw_model(rng, max_seq_len=longest)
    P = int(rng.integers(3, 6))
    below, much = -int(rng.integers(1, 5)), longest + int(rng.integers(2, 9))
    return {
        **model,
        "prompt": draw_tokens(rng, 2, P, model["config"]["vocab_size"]),
        "requests": [
            {"length": P, "n_new": below, "name": [str(below)]},
            {"length": P, "n_new": 2.5, "name": ["2.5"]},
            {"length": P, "n_new": much, "name": [str(much), str(P + much), str(longest)]},
            {"length": 0, "n_new": 2, "name": [""]},
            {"length": P, "n_new": longest - P, "name": None},
        ],
    }


def probe_bad_requests(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, outcomes = build_model(challenge), []
    for request in challenge["requests"]:
        prompt = torch.tensor(challenge["prompt"][:, : request["length"]])
        outcome, message = "returned", ""
        with count_kv_rows(model) as count:
            try:
                student.generate_naive(model, prompt, request["n_new"])
            except NotImplementedError:
                raise
            except Exception as error:
                outcome, message = type(error).__name__, str(error)
        rows = sum(count.by_layer[0])
        outcomes.append({"outcome": outcome, "message": message, "rows": rows})
    return {"outcomes": outcomes}


def judge_bad_requests(challenge: Challenge, evidence: Evidence) -> Verdict:
    longest = challenge["config"]["max_seq_len"]
    for request, seen in zip(challenge["requests"], evidence["outcomes"], strict=True):
        case = (
            f"A prompt of {request['length']} tokens with n_new={request['n_new']} "
            f"(max_seq_len is {longest})"
        )
        outcome = seen["outcome"] if seen["outcome"] == "returned" else f"gave {seen['outcome']}"
        if request["name"] is None:
            if seen["outcome"] != "returned":
                return failed(
                    f"{case} fits exactly, but {outcome}: {seen['message']} Is the last place free?"
                )
            continue
        if seen["outcome"] != "ValueError":
            question = (
                "How else would the caller notice?"
                if seen["outcome"] == "returned"
                else "Does your code look at the request before it starts?"
            )
            return failed(f"{case} {outcome}; wanted is a ValueError. {question}")
        if seen["rows"]:
            return failed(
                f"{case} was refused only after {seen['rows']} rows of keys had been computed. "
                f"What can be known before the first forward pass?"
            )
        if not any(name in seen["message"] for name in request["name"]):
            return failed(
                f'{case}: your ValueError says "{seen["message"]}", without '
                f"{' or '.join(request['name'])}. Can the caller see which value was wrong?"
            )
    return passed("What cannot be done is refused at the door, and the message names the value.")


bad_requests_are_refused = Check(
    "bad_requests_are_refused", NEEDS, draw_bad_requests, probe_bad_requests, judge_bad_requests
)

# --- the work ------------------------------------------------------------------------------------


def probe_work(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    model, counts = build_model(challenge), []
    for n_new in (0, 1, challenge["n_new"]):
        prompt = torch.tensor(challenge["prompt"])
        with count_kv_rows(model) as count:
            student.generate_naive(model, prompt, n_new)
        counts.append({"n_new": n_new, "by_layer": [list(calls) for calls in count.by_layer]})
    return {"counts": counts}


def judge_work(challenge: Challenge, evidence: Evidence) -> Verdict:
    B, P = challenge["prompt"].shape
    for seen in evidence["counts"]:
        n_new, by_layer = seen["n_new"], seen["by_layer"]
        case = f"{B} rows, a prompt of {P} tokens, n_new={n_new}"
        wanted = [B * (P + step) for step in range(n_new)]
        for layer, calls in enumerate(by_layer):
            if sum(calls) != sum(wanted):
                return failed(
                    f"{case}: layer {layer} computed keys for {sum(calls)} rows in {len(calls)} "
                    f"forward passes; one pass over everything so far for each new token makes "
                    f"{sum(wanted)} in {len(wanted)}. {_ask_about_work(calls, wanted)}"
                )
    return passed("One forward pass over everything so far for each new token, and no other.")


def _ask_about_work(calls: list[int], wanted: list[int]) -> str:
    if len(calls) > len(wanted):
        return "Which of your forward passes chooses no token?"
    if sum(calls) > sum(wanted):
        return "Which tokens are fed in that the model has not even written yet?"
    return "Does every pass see the whole text so far?"


each_step_reads_everything = Check(
    "each_step_reads_everything", NEEDS, draw_request, probe_work, judge_work
)

# --- counting rows -------------------------------------------------------------------------------


def make_naive_rows(draw: Draw, truth: Callable[..., int]) -> Check:
    """`kv_rows_naive(p, g)`."""

    def question(sizes: Sizes, got: float, right: int) -> str:
        p, g = sizes
        if g == 0:
            return "How many forward passes are there when no token is wanted?"
        if got == right + g:
            return "How many new tokens does the very first forward pass read?"
        if got == right + g / 2:
            return "What is 0 + 1 + … + (g-1) exactly?"
        if p > 1 and got in (g * (g + 1) / 2, g * (g - 1) / 2):
            return "Does the prompt pass through the model only once?"
        return f"The first step reads {p} tokens. How many does the last of the {g} steps read?"

    return count_check(
        "naive_rows_add_up",
        "kv_rows_naive",
        draw,
        truth,
        question,
        "Every step computes a row for every token so far.",
    )


def make_needed_rows(draw: Draw, truth: Callable[..., int]) -> Check:
    """`kv_rows_needed(p, g)`."""

    def question(sizes: Sizes, got: float, right: int) -> str:
        p, g = sizes
        if g == 0:
            return "How many forward passes are there when no token is wanted?"
        if got == p + g:
            return f"Of all {p + g} tokens, which one is never fed into the model?"
        return "Which tokens are fed into the model at least once?"

    return count_check(
        "needed_rows_add_up",
        "kv_rows_needed",
        draw,
        truth,
        question,
        "Each token that is ever fed in needs one row, and the last one is never fed in.",
    )


def make_visits(draw: Draw, truth: Callable[..., int]) -> Check:
    """`attention_visits(prompt_len, n_new)`."""

    def question(sizes: Sizes, got: float, right: int) -> str:
        P, T = sizes
        if T == 0:
            return "Who looks at anything when no token is wanted?"
        if got == right + T:
            return "How many positions are there to look at when the first new token is chosen?"
        if P > 1 and got in (T * (T + 1) / 2, T * (T - 1) / 2):
            return "Do later steps no longer look at the prompt?"
        return f"Step 1 looks at {P} positions. At how many does step {T} look?"

    return count_check(
        "visits_add_up",
        "attention_visits",
        draw,
        truth,
        question,
        "The prompt is looked at in every step, and each step looks at one position more.",
    )


NAIVE_ROWS = {(5, 1): 5, (2, 3): 9, (3, 4): 18, (1, 8): 36, (100, 50): 6_225, (4, 0): 0}
NEEDED_ROWS = {(5, 1): 5, (2, 3): 4, (3, 4): 6, (1, 8): 8, (4, 0): 0}
VISITS = {(7, 1): 7, (2, 2): 5, (1, 8): 36, (1, 16): 136, (2_000, 200): 419_900, (4, 0): 0}

naive_rows_add_up = make_naive_rows(lambda _: list(NAIVE_ROWS), lambda *s: NAIVE_ROWS[s])
needed_rows_add_up = make_needed_rows(lambda _: list(NEEDED_ROWS), lambda *s: NEEDED_ROWS[s])
visits_add_up = make_visits(lambda _: list(VISITS), lambda *s: VISITS[s])
