"""Check which experts a token uses, and with which weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import RECORD, one_each, record, wrong_form

CHOICE = {"kind": str, "chosen": RECORD}
PAIR = {**CHOICE, "weights": RECORD}
SMALLEST_RATIO = 1e-30
"""Below it a weight may be 0: float32 has no smaller numbers."""
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.05}
"""Of a weight's ratio to the largest, and of the sum; a part of it where it is above 1."""


def case_of(logits: np.ndarray, k: int, stage: str, dtype: str = "float32") -> Challenge:
    return {"logits": logits.astype(np.float32), "k": k, "stage": stage, "dtype": dtype}


def draw_choices(seed: int) -> Challenge:
    """Draw one token, several, k of 1 and of all, logits below 0, near ties, far apart and equal."""
    rng = np.random.default_rng(seed)
    near = rng.permuted(np.tile(1 + 1e-4 * np.arange(6), (4, 1)), axis=1)
    ties = rng.permuted(np.tile([2.0, 1, 1, 1, 0, -1], (5, 1)), axis=1)
    ties[:2] = (
        [-1, 0, 1, 1, 1, 2],
        [2, 1, 1, 1, 0, -1],
    )  # the largest behind all ties, and before them
    far = np.array([[299.0, 300, -310, -300, -10], [-10, -300, -310, 300, 299]])
    k, N = int(rng.integers(2, 5)), int(rng.integers(6, 12))
    cases = [
        case_of(np.array([[0.5, 2, -1, 1]]), 2, "one"),
        case_of(np.array([[0.5, 2, -3, 1]]), 1, "single"),
        case_of(rng.normal(size=(5, 6)), 2, "several"),
        case_of(rng.normal(size=(4, N)), k, "several"),
        case_of(-np.abs(rng.normal(size=(4, 6))) - 1, 3, "negative"),
        case_of(rng.normal(size=(3, 4)), 4, "all"),
        case_of(rng.normal(size=(3, 1)), 1, "all"),
        case_of(near, 3, "near"),
        case_of(near, 3, "near", "float64"),
        case_of(far, 3, "far"),
        case_of(far, 1, "far"),
        case_of(ties, 2, "ties"),
        case_of(np.zeros((2, 5)), 3, "ties"),
        case_of(ties, 3, "ties"),
        case_of(np.array([[-210, -150, -300, -120, -180]]), 3, "negative"),
        case_of(np.array([[60, 70, 55, 90, 80]]), 2, "far"),
    ]
    return {"cases": cases}


def draw_weights(seed: int) -> Challenge:
    """Draw logits without ties: one token, several, far apart, far from 0, of other types."""
    rng = np.random.default_rng([seed, 1])
    several = rng.normal(0, 2, (4, 7))
    cases = [
        case_of(np.array([[1, 2, -1, 0.5]]), 2, "one"),
        case_of(np.array([[0.5, 2, -3, 1]]), 1, "single"),
        case_of(several, 3, "several"),
        case_of(rng.normal(0, 2, (3, 4)), 4, "all"),
        case_of(several + 300, 3, "shifted"),
        case_of(several - 1000, 3, "shifted"),
        case_of(several + np.array([[0], [300], [-300], [50]]), 3, "apart"),
        case_of(rng.permuted(np.tile([300.0, 0, -300, 299, 1], (3, 1)), axis=1), 3, "far"),
        case_of(several, 3, "float64", "float64"),
        case_of(np.round(several * 4) / 4 + np.arange(7) / 64, 3, "bfloat16", "bfloat16"),
    ]
    return {"cases": cases}


def record_pair(result: Any) -> Evidence:
    """Record two tensors; of anything else, say what it is."""
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    chosen, weights = result if is_pair else (None, None)
    kind = "" if is_pair else in_words(result)
    return {"kind": kind, "chosen": record(chosen), "weights": record(weights)}


def logits_of(case: Challenge) -> torch.Tensor:
    return given(case["logits"], getattr(torch, case["dtype"]))


def probe_routes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Route the tokens of each case."""
    cases = challenge["cases"]
    return {"routes": [record_pair(student.route(logits_of(case), case["k"])) for case in cases]}


def probe_choices(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Route, whatever the weights."""
    routes = probe_routes(student, challenge)["routes"]
    return {"routes": [{name: route[name] for name in CHOICE} for route in routes]}


def case_text(case: Challenge) -> str:
    """Write "route of 1 token, logits [[0.5, 2.0, -1.0, 1.0]], k = 2"."""
    (n, N), k = case["logits"].shape, case["k"]
    tokens = f"{n} token{'s' * (n > 1)}"
    shown = case["logits"].tolist() if n == 1 else f"of {N} expert{'s' * (N > 1)}"
    in_type = "" if case["dtype"] == "float32" else f" in {case['dtype']}"
    return f"route of {tokens}, logits {shown}{in_type}, k = {k}"


def wrong_choice_form(case: Challenge, got: Evidence) -> str | None:
    """Tell what is wrong about the form of a choice; None where nothing is."""
    n, N = case["logits"].shape
    if got["kind"]:
        return f"gave {got['kind']}; expected are two tensors, chosen and weights."
    if wrong := wrong_form(got["chosen"], (n, case["k"]), "int64"):
        return f"chosen: it {wrong}"
    chosen = got["chosen"]["numbers"]
    if chosen.min() < 0 or chosen.max() >= N:
        return f"chosen holds {chosen.min()} … {chosen.max()}. Which numbers do {N} experts have?"
    for row, experts in enumerate(chosen.tolist()):
        if len(set(experts)) < len(experts):
            return f"token {row} uses {experts}. Can a token use one expert twice?"
    return None


CHOICE_QUESTIONS = {
    "one": "Which {k} logits of this token are the largest?",
    "single": "With k = 1 each token uses one expert. Which?",
    "several": "One token alone is right. Over which axis do you choose?",
    "negative": "All logits are below 0 here. What do you compare them with?",
    "all": "Every expert is used here. Which does your choice leave out?",
    "near": "The logits differ by 0.0001. Which of your lines loses such a difference?",
    "far": "These logits lie hundreds apart. What becomes of them before you compare them?",
    "ties": "Some logits are equal here: of these any will do. What does your choice do with them?",
}


@check("route", draw=draw_choices, probe=probe_choices, evidence=one_each(routes=CHOICE))
def routing_takes_the_best(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Look for a logit that is larger than a chosen one, and was not chosen."""
    for case, got in zip(challenge["cases"], evidence["routes"], strict=True):
        if wrong := wrong_choice_form(case, got):
            return failed(f"{case_text(case)}: {wrong}")
        for row, (experts, logits) in enumerate(
            zip(got["chosen"]["numbers"].tolist(), case["logits"].tolist(), strict=True)
        ):
            rest = [number for number in range(len(logits)) if number not in experts]
            worst = min(experts, key=logits.__getitem__)
            better = max(rest, key=logits.__getitem__, default=worst)
            if logits[better] > logits[worst]:
                return failed(
                    f"{case_text(case)}: token {row} uses expert {worst}, whose logit is "
                    f"{logits[worst]:.6g}, and not expert {better}, whose logit is "
                    f"{logits[better]:.6g}. {CHOICE_QUESTIONS[case['stage']].format(**case)}"
                )
    return passed("Each token uses the k experts with its largest logits, equal ones included.")


WEIGHT_QUESTIONS = {
    "one": "What does a softmax over the chosen logits alone give, and which weight is whose?",
    "single": "Only one expert is used. How much of the output is its own?",
    "several": "One token alone is right. Whose logits does a token's softmax see?",
    "all": "Every expert is used here. Does each weight stand where its expert stands?",
    "shifted": "Each logit was moved by the same number. Does that change a softmax?",
    "apart": "The logits of these tokens lie hundreds apart. Does a token's softmax see its own alone?",
    "far": "These logits lie 300 apart. What is the largest number that float32 holds?",
    "float64": "float32 agrees. Which of your lines computes in another type?",
    "bfloat16": "float32 agrees. Which of your lines computes in another type?",
}


@check("route", draw=draw_weights, probe=probe_routes, evidence=one_each(routes=PAIR))
def weights_of_the_chosen(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare ratios of weights with differences of logits, of whatever experts were chosen."""
    for case, got in zip(challenge["cases"], evidence["routes"], strict=True):
        if wrong := wrong_choice_form(case, got):
            return failed(f"{case_text(case)}: {wrong}")
        if wrong := wrong_form(got["weights"], got["chosen"]["numbers"].shape, case["dtype"]):
            return failed(f"{case_text(case)}: weights: it {wrong}")
        for row, experts in enumerate(got["chosen"]["numbers"].tolist()):
            weights = got["weights"]["numbers"][row].astype(np.float64)
            logits = case["logits"][row, experts].astype(np.float64)
            if wrong := wrong_weights(logits, weights, TOLERANCES[case["dtype"]]):
                return failed(
                    f"{case_text(case)}: token {row} uses experts {experts} with the weights "
                    f"{np.round(weights, 4).tolist()}; {wrong}. {WEIGHT_QUESTIONS[case['stage']]}"
                )
    return passed("The weights of a token's experts are the softmax of these experts' logits.")


def wrong_weights(logits: np.ndarray, weights: np.ndarray, tolerance: float) -> str | None:
    """Tell what is wrong about the weights of one token's experts; None where nothing is."""
    total = weights.sum()
    if not abs(total - 1) <= tolerance:
        return f"they add up to {total:.6g}"
    first = int(logits.argmax())
    for other, weight in enumerate(weights):
        apart = logits[first] - logits[other]
        expected = np.exp(-apart)
        if expected < SMALLEST_RATIO and 0 <= weight <= SMALLEST_RATIO:
            continue
        if not abs(weight / weights[first] - expected) <= tolerance * expected:
            return (
                f"the logits of numbers {first} and {other} in this list are {apart:.4g} apart, so the "
                f"first weight is {np.exp(min(apart, 700)):.4g} times the second, and not "
                f"{weights[first] / weight if weight else np.inf:.4g} times"
            )
    return None
