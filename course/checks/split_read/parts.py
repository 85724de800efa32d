"""One part: the largest score, the sum of weights and the sum of values, for each query."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.attention_cases import draw_case, draw_mask, largest_text, sizes_text, tensors_of
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import one_each
from course.checks.split_read.recording import (
    FIELDS,
    PART,
    Truth,
    record_part,
    wrong_part,
)
from course.measure.allocations import watch_new_tensors

ROWS = (
    "The rows before it are right. What is different here: whose keys and values it reads, or the signs "
    "and sizes of its scores?"
)
HEADS = (
    "The heads before it are right. Which KV head does this one read, and what do heads share that is "
    "each one's own?"
)
QUERIES = "The queries before it are right. In which order do your reshapes put heads and tokens?"
QUESTIONS = {
    "one key": {
        "top": "There is one key, so its score is the top, which may be below 0. What becomes of q · k "
        "before it is a score (lesson 01), and of a score before it is the top?",
        "total": "There is one key, and its score is the top. What is e to the power of 0?",
        "out": "There is one key, and its weight is 1. What becomes of its value?",
    },
    "one query": {
        "top": "Which of a query's scores is its top?",
        "total": "The top is right. What is added up, over which axis?",
        "out": "Top and total are right. Each value counts exp(score - top) times: is there anything "
        "else in your sum?",
    },
    "queries": {
        "top": "One query alone agrees; here are several. Has each its own top, and in which order do "
        "your reshapes put heads and tokens?",
        "total": "One query alone agrees; here are several. Over which axis do you add up?",
        "out": "One query alone agrees; here are several. In which order do your reshapes put heads and "
        "tokens?",
    },
    "groups": dict.fromkeys(
        FIELDS,
        "Where each head has its own keys all agrees. Which KV head does this head read, and by which "
        "width are scores scaled?",
    ),
    "types": dict.fromkeys(FIELDS, "The same call agrees in float32. Which line counts on a type?"),
    "counted": dict.fromkeys(FIELDS, "Smaller cases agree. Which line counts on a size?"),
    "mask": {
        "top": "Is this the score of a key that is hidden, or is one left out that this query sees?",
        "total": "The top is right. What does a hidden key add to the sum?",
        "out": "Top and total are right. What does a hidden key add to the sum?",
    },
    "low": {
        "top": "The only score is far below 0. What is the largest of these scores?",
        "total": "The only score is far below 0. Which number is it counted from, and is that its own?",
        "out": "The only score is far below 0. Which weight has the only key that there is?",
    },
    "nobody": {
        "top": "This query sees none of the keys. What is the largest of no scores, as the docstring "
        "has it?",
        "total": "This query sees none of the keys. Which weights add up to this total?",
        "out": "This query sees none of the keys. Which weights did they get?",
    },
}
"""Ends the message of a case in which a field is wrong, by what is new in the case."""


def draw_parts(seed: int) -> Challenge:
    """Draw one key, whose score is below 0, and lower in the second head than in the first; one query,
    several, groups, one key far below 0, another type; then masks, at last one that hides all keys
    from some queries; and many keys, of one KV head and of two under a mask, for which new tensors
    are counted."""
    rng = np.random.default_rng(seed)
    T, S = int(rng.integers(2, 4)), int(rng.integers(5, 9))
    staged = [
        ("one key", (1, 2, 2, 1, 1), 6),
        ("one query", (2, 3, 3, 1, S), 6),
        ("queries", (2, 3, 3, T, S), 6),
        ("groups", (2, 4, 2, 1, S), 6),
        ("groups", (3, 6, 2, T, S), 5),
        ("groups", (1, 6, 3, S, T), 2),
        ("groups", (2, 4, 1, T, 1), 4),
    ]
    cases = [{**draw_case(rng, sizes, D=D), "stage": stage} for stage, sizes, D in staged]
    q, k = (np.abs(cases[0][name]) for name in "qk")  # of one sign, so that no sum loses digits
    q *= (
        np.float32([-1, -2])[:, None, None]
        * rng.uniform(1, 3)
        / (q * k).sum(axis=-1, keepdims=True)
    )
    cases[0] |= {"q": q, "k": k}
    cases.append({**cases[0], "q": 1e5 * q, "stage": "low"})
    same = draw_case(rng, (1, 4, 2, T, S))
    cases += [{**same, "stage": "groups"}, {**same, "dtype": "float64", "stage": "types"}]
    for name in ("(T, S)", "(B, 1, T, S)", "(B, H, T, S)"):
        sizes = (2, 4, 2, T, S)
        cases.append({**draw_case(rng, sizes, draw_mask(rng, sizes, name)), "stage": "mask"})
    blind = {**draw_case(rng, (2, 4, 2, T, S), draw_blind_mask(rng, T, S)), "stage": "nobody"}
    long = [draw_case(rng, (1, 2, 1, 1, int(rng.integers(200, 260))), D=64)]
    sizes = (1, 4, 2, 1, int(rng.integers(200, 260)))
    long.append(draw_case(rng, sizes, draw_mask(rng, sizes, "(1, S)"), D=64))
    counted = [{**case, "q": 0.25 * case["q"], "stage": "counted"} for case in long]
    return {"cases": [*cases, blind, *counted]}


def draw_blind_mask(rng: np.random.Generator, T: int, S: int) -> np.ndarray:
    """Draw a mask (T, S) that hides all keys from one query and some from the others."""
    mask = rng.random((T, S)) < 0.6
    mask[:, 0] = True
    mask[int(rng.integers(T))] = False
    return mask


def probe_parts(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend to each case's keys; count new tensors. The mask is left out where there is none."""
    parts, counts, largest = [], [], []
    for case in challenge["cases"]:
        tensors = tensors_of(case)
        with watch_new_tensors(*tensors) as made:
            part = student.attend_part(*tensors)
        parts.append(record_part(part))
        counts.append(made.numbers)
        largest.append(largest_text(made))
    return {"parts": parts, "counts": counts, "largest": largest}


@check(
    "attend_part",
    draw=draw_parts,
    probe=probe_parts,
    evidence=one_each(parts=PART, counts=int, largest=str),
)
def parts_say_their_sums(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare top, total and out, in this order."""
    for case, got in zip(challenge["cases"], evidence["parts"], strict=True):
        questions = QUESTIONS[case["stage"]]
        later = (ROWS, HEADS, QUERIES)[: 3 if case["stage"] == "groups" else 2]
        later = () if case["stage"] in ("mask", "nobody") else later  # without a mask all agree
        if wrong := wrong_part(got, truth(case), case["dtype"], tolerance, questions, later):
            masked = ", under a mask" * (case["mask"] is not None)
            return failed(f"{sizes_text(case)}{masked}: attend_part {wrong}")
    counted = zip(challenge["cases"], evidence["counts"], evidence["largest"], strict=True)
    for case, count, largest in (one for one in counted if one[0]["stage"] == "counted"):
        if count >= case["k"].size:
            masked = ", under a mask" * (case["mask"] is not None)
            return failed(
                f"{sizes_text(case)}{masked}: the sums are right, but into new tensors you write "
                f"{count:,} numbers, and the keys are {case['k'].size:,}. The largest one, but for axes "
                f"of 1, is {largest}. Which of your lines writes keys or values once more?"
            )
    return passed("Top, total and out are what the scores of these keys give, for every query.")
