"""Scores hundreds apart, between parts and within one: what float32 can hold, and what it cannot."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course.checks.attention_cases import draw_case, tensors_of
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import one_each
from course.checks.split_read.merging import draw_tree, merge_by
from course.checks.split_read.recording import RECORD, Truth, record, unwatched, wrong_output

TOLERANCE = 1e-3
"""A score of some hundreds is rounded by 3e-5 in float32; without the maximum, errors are infinite."""
D = 4
FAR_BELOW_0 = (
    "Scores around 0 agree, and these are all around -120. What is e to the power of that in float32, "
    "and which top has a part without keys, if yours begins with one?"
)
"""The question about a case of which `far_below_0` has moved the scores."""


def draw_far(seed: int) -> Challenge:
    """Draw keys in parts of 3: near 0; then each part hundreds above or below the next, the highest
    first, last or twice; then such scores within every part; then all of them far below 0."""
    rng = np.random.default_rng(seed)
    step = int(rng.integers(25, 45)) * 8  # 200 … 352, exact beside every score
    far = rng.permutation([step, -step, 0, step]).tolist()
    staged = [
        ([0, 0, 0], False),
        ([-step, step], False),
        ([step, -step], False),
        (far, False),
        ([step, step, step], False),
        ([-step, -2 * step, -step], False),
        (far, True),
    ]
    return {"cases": [draw_levels(rng, levels, within) for levels, within in staged]}


def far_below_0(case: Challenge, *keys: str) -> Challenge:
    """Move the scores of a case to about -120: float32 has no number that small but 0 for their
    exponentials, and attention is as it was."""
    q = case["q"].copy()
    q[..., 0] = np.sqrt(q.shape[-1])
    moved = {name: case[name].copy() for name in keys}
    for k in moved.values():
        k[..., 0] = -120
    return {**case, **moved, "q": q}


def draw_levels(rng: np.random.Generator, levels: list[int], within: bool) -> Challenge:
    """Draw queries, and keys of parts whose scores lie around these levels, or around all of them
    `within` each part."""
    n = len(levels)
    case = draw_case(rng, (2, 4, 2, 2, 3 * n), D=D)
    q, k = 0.5 * case["q"], case["k"].copy()
    q[..., 0] = np.sqrt(D)  # so that the first feature of a key is added to its score
    k[..., 0] = np.resize(levels, 3 * n) if within else np.repeat(levels, 3)
    return {**case, "q": q, "k": k, "levels": levels, "within": within, "tree": draw_tree(rng, n)}


def probe_far(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend to the parts, merge them in the case's order, finish."""
    out = []
    attend_part, merge, finish = map(
        unwatched, (student.attend_part, student.merge, student.finish)
    )
    for case in challenge["cases"]:
        q, k, v = tensors_of(case)
        cuts = [slice(first, first + 3) for first in range(0, k.shape[2], 3)]
        parts = [attend_part(q, k[:, :, cut], v[:, :, cut]) for cut in cuts]
        out.append(record(finish(merge_by(case["tree"], parts, merge))))
    return {"out": out}


@check(
    "attend_part",
    "merge",
    "finish",
    draw=draw_far,
    probe=probe_far,
    evidence=one_each(out=RECORD),
    tolerance=TOLERANCE,
)
def far_apart_scores(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare what was finished with attention over all keys."""
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        levels = case["levels"]
        where = f"{len(levels)} parts with scores around {levels}"
        if case["within"]:
            where = f"{len(levels)} parts, each with scores around {levels}"
        question = (
            "Parts with scores around 0 agree. Which of your numbers is e to the power of a score, and "
            "how large may it become in float32?"
            if any(levels)
            else "Scores are small here. Do the checks before this one pass?"
        )
        if wrong := wrong_output(got, truth(case), case["dtype"], tolerance, question):
            return failed(f"{where}: finish of the merged parts {wrong}")
    return passed("Scores of hundreds, above 0 and below: no number overflows, none is lost.")
