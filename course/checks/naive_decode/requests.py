"""The check of what `generate_naive` refuses, and of what it must not refuse."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.drawing import build_model, draw_model, draw_tokens
from course.checks.recorder import given
from course.checks.recording import one_each
from course.measure.counting import count_kv_rows


def draw_bad_requests(seed: int) -> Challenge:
    """Draw requests that must be refused, each with the words of which one must stand in the message;
    and some at the edge that can be done, whose `name` is None."""
    rng = np.random.default_rng(seed)
    longest = int(rng.integers(9, 13))
    model = draw_model(rng, n_layers=1, max_seq_len=longest)
    P = int(rng.integers(3, 6))
    below, much = -int(rng.integers(1, 5)), longest + int(rng.integers(2, 9))
    room = longest - P
    return {
        **model,
        "prompt": draw_tokens(rng, 2, longest + 1, model["config"]["vocab_size"]),
        "requests": [
            {"length": P, "n_new": below, "name": [str(below)]},
            {"length": P, "n_new": -1, "name": ["-1"]},
            {"length": P, "n_new": 2.5, "name": ["2.5"]},
            {"length": P, "n_new": much, "name": [str(much), str(P + much), str(longest)]},
            {
                "length": P,
                "n_new": longest,
                "name": [str(longest), str(P + longest)],
            },
            {
                "length": P,
                "n_new": room + 1,
                "name": [str(room + 1), str(longest + 1), str(longest)],
            },
            {"length": 0, "n_new": 2, "name": [""]},
            {"length": 0, "n_new": 0, "name": [""]},
            {"length": longest + 1, "n_new": 0, "name": [str(longest + 1), str(longest)]},
            {"length": P, "n_new": room - 1, "name": None},
            {"length": P, "n_new": room, "name": None},
            {"length": P, "n_new": 1, "name": None},
            {"length": P, "n_new": 0, "name": None},
        ],
    }


def probe_bad_requests(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Record what each request came to, and the rows of keys that the refused ones cost in one layer."""
    model, outcomes = build_model(challenge), []
    for request in challenge["requests"]:
        prompt = given(challenge["prompt"][:, : request["length"]])
        refused = request["name"] is not None
        outcome, message = "returned", ""
        with count_kv_rows(model) if refused else nullcontext() as count:
            try:
                student.generate_naive(model, prompt, request["n_new"])
            except NotImplementedError:
                raise
            except Exception as error:
                outcome, message = type(error).__name__, str(error)
        rows = sum(count.by_layer[0]) if refused else 0
        outcomes.append({"outcome": outcome, "message": message, "rows": rows})
    return {"outcomes": outcomes}


@check(
    "generate_naive",
    draw=draw_bad_requests,
    probe=probe_bad_requests,
    evidence=one_each("requests", outcomes={"outcome": str, "message": str, "rows": int}),
)
def bad_requests_are_refused(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Judge whether bad requests are refused before any work, naming the value, and good ones not."""
    for request, outcome in zip(challenge["requests"], evidence["outcomes"], strict=True):
        judge = judge_refusal if request["name"] is not None else judge_acceptance
        if wrong := judge(challenge["config"]["max_seq_len"], request, outcome):
            return wrong
    return passed("What cannot be done is refused at the door, and the message names the value.")


def judge_acceptance(longest: int, request: Evidence, outcome: Evidence) -> Verdict | None:
    if outcome["outcome"] == "returned":
        return None
    case = _request_text(longest, request)
    gave = f"gave {outcome['outcome']}: {outcome['message']}".rstrip(".")
    if request["length"] + request["n_new"] == longest:
        return failed(f"{case} fits exactly, but {gave}. Is the last place free?")
    question = "What is the smallest n_new?"
    if outcome["outcome"] != "ValueError":
        question = "Which of your lines stops it?"
    elif request["n_new"] > 1:
        question = (
            "How many tokens do you hold against max_seq_len, of how many of its 2 rows, and is anything "
            "added?"
        )
    return failed(f"{case} can be done, but {gave}. {question}")


def judge_refusal(longest: int, request: Evidence, outcome: Evidence) -> Verdict | None:
    case = _request_text(longest, request)
    if outcome["outcome"] == "returned":
        question = "Which n_new can this prompt take?"
        if request["length"] == 0:
            question = "What is wrong with this prompt, whatever n_new is?"
        elif request["length"] > longest:
            question = "How many tokens can the model read, whatever n_new is?"
        elif request["n_new"] == longest:
            question = "How many of these places does the prompt take?"
        return failed(f"{case} returned; wanted is a ValueError. {question}")
    if outcome["outcome"] != "ValueError":
        return failed(
            f"{case} gave {outcome['outcome']}; wanted is a ValueError. "
            "Which of your lines raises it, and which exception does the docstring name?"
        )
    if outcome["rows"]:
        return failed(
            f"{case} was refused only after {outcome['rows']} rows of keys had been computed. "
            f"What can be known before the first forward pass?"
        )
    if not any(name in outcome["message"] for name in request["name"]):
        return failed(
            f'{case}: your ValueError says "{outcome["message"]}", without '
            f"{' or '.join(request['name'])}. Can the caller see which value was wrong?"
        )
    return None


def _request_text(longest: int, request: Evidence) -> str:
    return (
        f"A prompt of {request['length']} tokens with n_new={request['n_new']} "
        f"(max_seq_len is {longest})"
    )
