"""Heads that are shared: which query head reads which KV head, for every shape and type."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.attention_cases import draw_case, sizes_text, tensors_of
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.ready_made import NoReadyMadeAttention
from course.checks.recording import RECORD, one_each, record, wrong_form

Truth = Callable[[Challenge], np.ndarray]
"""What a case's queries read, (B, H, T, D)."""
QUESTIONS = {
    "one key": "There is one key, so its share is 1. What becomes of the value on its way out?",
    "one query": "Every head has its own keys here, there is one query and no mask. How does a score "
    "become a weight, of which keys, and over which axis do weights add up to 1?",
    "queries": "One query alone agrees; here are several, and no mask. Which keys does each see, and "
    "in which order do your reshapes put heads and tokens?",
    "groups": "Where each head has its own keys all agrees. Which query heads are neighbours, and "
    "which KV head do they read?",
    "sizes": "Smaller ones agree. Which of your lines counts on a size?",
    "far": "Smaller scores agree; here some are above 100, and those of the other row below -100. What "
    "is e to the power of 100 in float32, and by what may all scores of a query be shifted?",
    "types": "The same call agrees in float32. Which of your lines counts on a type?",
}
"""Ends the message of a case in which numbers differ, by what is new in it."""


def level(rng: np.random.Generator, case: Challenge, dtype: str, values: str = "v") -> Challenge:
    """Turn a case into one whose results are exact in a small type: queries of 0 give every key that
    is seen the same share, and values, which the case has under that name, are multiples of 8."""
    drawn = 8.0 * rng.integers(-8, 9, case[values].shape).astype(np.float32)
    return {**case, "q": np.zeros_like(case["q"]), values: drawn, "dtype": dtype}


def draw_shared(seed: int) -> Challenge:
    """Draw cases without a mask: each head its own, groups, one head for all; then rows that differ
    in their last key alone, sizes beyond any constant, scores far from 0, and every type."""
    rng = np.random.default_rng(seed)
    T, S = int(rng.integers(2, 4)), int(rng.integers(5, 9))
    tall, long, wide = (int(rng.integers(n, n + 30)) for n in (130, 4100, 65))
    staged = [
        ("one key", (1, 2, 2, 1, 1)),
        ("one query", (2, 4, 4, 1, S)),
        ("queries", (2, 4, 4, T, T)),
        *(("groups", (2, *size)) for size in [(4, 2, 1, S), (6, 2, T, S), (6, 3, S, T)]),
        *(("groups", (2, *size)) for size in [(4, 1, T, S), (6, 2, 2, 1), (4, 2, 1, S)]),
    ]
    cases = [{**draw_case(rng, sizes), "stage": stage} for stage, sizes in staged]
    cases.append({**with_late_rows(draw_case(rng, (3, 4, 2, 2, S))), "stage": "groups"})
    for sizes in ((1, 1, 1, tall, 3), (1, 2, 1, 1, long), (1, wide, 1, 1, 3)):
        cases.append({**draw_case(rng, sizes, D=2), "stage": "sizes"})
    cases.append(with_far_scores(draw_case(rng, (2, 4, 2, 2, S), D=4)))
    cases.append({**draw_case(rng, (1, 4, 2, 2, S)), "dtype": "float64", "stage": "types"})
    for dtype in ("float16", "bfloat16"):
        cases.append({**level(rng, draw_case(rng, (1, 4, 2, T, 4)), dtype), "stage": "types"})
    return {"cases": cases}


def with_late_rows(case: Challenge) -> Challenge:
    """Make all rows of a batch the first one; and give the last row a last key and value of its own."""
    alike = {name: np.repeat(case[name][:1], len(case[name]), axis=0) for name in ("q", "k", "v")}
    for name in ("k", "v"):
        alike[name][-1, :, -1] = case[name][-1, :, -1]
    return {**case, **alike}


def with_far_scores(case: Challenge) -> Challenge:
    """Shift all scores of the first row to above 100, and of the second to below -100; shares stay.

    Feature 0 of every key is 1, and of a query a power of two, which leaves other digits as they are.
    """
    q, k = 0.5 * case["q"], case["k"].copy()
    q[..., 0] = np.array([256, -256]).reshape(2, 1, 1)
    k[..., 0] = 1
    return {**case, "q": q, "k": k, "stage": "far"}


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    calls = map(tensors_of, challenge["cases"])
    with refuse_enable_gqa():
        return {"out": [record(student.grouped_attention(*tensors)) for tensors in calls]}


def refuse_enable_gqa() -> NoReadyMadeAttention:
    """Refuse PyTorch's option for shared heads, which does what this lesson asks to write."""
    return NoReadyMadeAttention("stack the queries of a group yourself.", option="enable_gqa")


def wrong_queries(got: np.ndarray, expected: np.ndarray, tolerance: float) -> tuple[Any, Any]:
    """Find queries whose output differs, (row, head, query) each; and by how much, (B, H, T)."""
    delta = np.abs(got.astype(np.float64) - expected).max(axis=3)
    delta[~np.isfinite(delta)] = np.inf
    return np.argwhere(delta > tolerance), delta


def first_difference(
    case: Challenge, got: dict[str, Any], expected: np.ndarray, tolerance: float, question: str
) -> str | None:
    """Tell the first row, head and query that differ, and by how much; None where all agree.

    Args:
        question: ends the message where numbers differ and nothing tells more.
    """
    if wrong := wrong_form(got, case["q"].shape, case["dtype"]):
        return f"{sizes_text(case)}: grouped_attention {wrong}"
    bad, delta = wrong_queries(got["numbers"], expected, tolerance)
    if not len(bad):
        return None
    row, head, query = bad[0].tolist()
    heads = sorted(set(bad[:, 1].tolist()))
    listed = ", ".join(map(str, heads[:8])) + " …" * (len(heads) > 8)
    instead = whose_output(got["numbers"][row, head, query], expected[row], tolerance)
    if instead:
        question = (
            f"{instead} Which KV head does it read, and in which order do your reshapes put heads "
            "and tokens?"
        )
    elif row > 0 and case["stage"] != "far":
        question = "The rows before it are right. Whose keys and values do the others read?"
    elif head > 0 and case["stage"] != "groups":
        question = "The heads before it are right. Whose keys and values do the others read?"
    return (
        f"{sizes_text(case)}: query {query} of head {head} differs (batch row {row}, max |Δ| "
        f"{delta[row, head, query]:.2g}, tolerance {tolerance:g}); wrong heads: {listed}. {question}"
    )


def whose_output(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """Say whose output (D,) this is among those of a row (H, T, D); "" where it is nobody's."""
    same = np.argwhere(np.abs(expected - got).max(axis=2) <= tolerance)
    if not len(same):
        return ""
    return f"It has the output of query {same[0][1]} of head {same[0][0]}."


@check(
    "grouped_attention",
    draw=draw_shared,
    probe=probe_attention,
    evidence=one_each(out=RECORD),
)
def grouped_equals_repeated(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        question = QUESTIONS[case["stage"]]
        if wrong := first_difference(case, got, truth(case), tolerance, question):
            return failed(wrong)
    return passed("MHA, GQA and MQA: the numbers of repeated heads, for any T and S.")
