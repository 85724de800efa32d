"""Keys in parts, with and without a mask: causal chunks, and windows that hide whole parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.attention_cases import draw_case, tensors_of
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.split_read.merging import draw_part
from course.checks.split_read.recording import (
    FIELDS,
    PART,
    RECORD,
    Numbers,
    Truth,
    make_part,
    record,
    record_part,
    unwatched,
    wrong_output,
    wrong_part,
)
from course.checks.split_read.scores import FAR_BELOW_0, far_below_0
from course.measure.allocations import watch_new_tensors

QUESTIONS = {
    "whole": "All keys should be one part here, and there is no mask. Are all of them in it, and what "
    "makes attention of a part's sums?",
    "parts": "With all keys in one part it agrees. If any_cut_any_order passes: is every key in "
    "exactly one part, the last ones too, and is every part merged into the result?",
    "far": FAR_BELOW_0,
    "causal": "Without a mask it agrees. Which columns of the mask belong to the keys of one part, and "
    "is every part read?",
    "window": "A causal mask agrees. Here some queries see nothing of whole parts, at the start or "
    "between. What do their top and total become when such parts are merged, and are the parts behind "
    "them read?",
    "shape": "Masks (T, S) agree. Which axis do you cut, and do the others stay?",
}
"""Ends the message of a case, by what is new in it."""
NOBODY = (
    "Some queries saw nothing in one of the two, others saw keys in both. Has each query a maximum and a "
    "sum of its own, and what does the other part say where one is empty?"
)
NAN = (
    "A query that sees nothing in a part has top -inf there. Where does NaN come up: in the part, when "
    "it is merged, or since no part with its keys was read?"
)
NEITHER = "For this query neither part saw a key; for the others one of them did, or both."
BOTH = {
    **dict.fromkeys(FIELDS, f"{NEITHER} What is -inf minus -inf?"),
    "top": f"{NEITHER} Which top has the whole then, as the docstring has it?",
}


def draw_masked(seed: int) -> Challenge:
    """Draw cuts without a mask, causal chunks, windows; masks of other shapes; and parts in which
    queries saw nothing."""
    rng = np.random.default_rng(seed)
    T, S = int(rng.integers(3, 5)), int(rng.integers(9, 13))
    sizes = (2, 4, 2, T, S)
    cases = [{**draw_case(rng, sizes), "size": S, "stage": "whole"}]
    for size in (S + 3, S - 1, S // 2, 4, 1):
        cases.append({**draw_case(rng, sizes), "size": int(size), "stage": "parts"})
    cases.append({**draw_case(rng, (1, 1, 1, 1, 1)), "size": 1, "stage": "parts"})
    cases.append({**far_below_0(draw_case(rng, sizes), "k"), "size": 3, "stage": "far"})
    causal = np.tri(T, S, S - T, dtype=bool)
    chunk = np.tri(S, S, 0, dtype=bool)
    cases += [
        {**draw_case(rng, sizes, causal), "size": 2, "stage": "causal"},
        {**draw_case(rng, (1, 4, 2, S, S), chunk), "size": 3, "stage": "causal"},
    ]
    window = causal & ~np.tri(T, S, S - T - 3, dtype=bool)  # the newest 3
    middle = ~window | np.eye(T, S, dtype=bool)
    blind = rng.random((2, 4, T, S)) < 0.3
    np.put_along_axis(blind, rng.integers(0, S, (2, 4, T, 1)), True, axis=3)
    cases += [
        {**draw_case(rng, sizes, window), "size": 2, "stage": "window"},
        {**draw_case(rng, sizes, middle), "size": 1, "stage": "window"},
        {**draw_case(rng, sizes, window[None, None]), "size": 4, "stage": "shape"},
        {**draw_case(rng, sizes, blind), "size": 2, "stage": "shape"},
        {**draw_case(rng, sizes, blind[:, :1, :1]), "size": 3, "stage": "shape"},
        {**draw_case(rng, sizes, blind[0, 0, 0]), "size": 3, "stage": "shape"},
        {**draw_case(rng, sizes, window), "size": 2, "stage": "window", "dtype": "float64"},
    ]
    return {"cases": cases, "pairs": draw_blind_pairs(rng)}


def draw_blind_pairs(rng: np.random.Generator) -> list[Challenge]:
    """Draw pairs of parts: in the first some queries saw nothing in one, in the second in neither."""
    shape = (1, 2, 4, 3)
    a, b = (draw_part(rng, shape) for _ in range(2))
    one = [blinded(a, [0]), blinded(b, [2])]
    both = [blinded(a, [0, 1]), blinded(b, [1, 3])]
    return [
        {"parts": one, "both": False},
        {"parts": one[::-1], "both": False},
        {"parts": both, "both": True},
    ]


def blinded(part: Numbers, queries: list[int]) -> Numbers:
    """Let these queries have seen nothing."""
    part = {name: numbers.copy() for name, numbers in part.items()}
    for name, nothing in (("out", 0), ("top", -np.inf), ("total", 0)):
        part[name][:, :, queries] = nothing
    return part


def probe_masked(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend in parts; merge the pairs; count new tensors with all keys at once, and with single keys."""
    merge = unwatched(student.merge)
    pairs = [
        record_part(merge(*(make_part(part) for part in pair["parts"])))
        for pair in challenge["pairs"]
    ]
    out = [attend(student, case) for case in challenge["cases"]]
    first, made = challenge["cases"][0], []
    for size in (first["size"], 1):
        tensors = tensors_of(first)
        with watch_new_tensors(*tensors) as new:
            student.attend_in_parts(*tensors, size)
        made.append(len(new.tensors))
    return {"out": out, "pairs": pairs, "made": made}


def attend(student: SimpleNamespace, case: Challenge) -> dict[str, Any]:
    """Run the student's attention in parts on a case."""
    q, k, v, *mask = tensors_of(case)
    return record(student.attend_in_parts(q, k, v, case["size"], *mask))


@check(
    "merge",
    "attend_in_parts",
    draw=draw_masked,
    probe=probe_masked,
    evidence=lambda challenge: {
        "out": [RECORD] * len(challenge["cases"]),
        "pairs": [PART] * len(challenge["pairs"]),
        "made": [int, int],
    },
)
def parts_nobody_sees(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare cuts without a mask first, then merged pairs, then masks; then see that there are parts."""
    cases = list(zip(challenge["cases"], evidence["out"], strict=True))
    plain = [case for case in cases if case[0]["mask"] is None]
    masked = [case for case in cases if case[0]["mask"] is not None]
    wrong = (
        first_wrong_case(plain, truth, tolerance)
        or first_wrong_pair(challenge, evidence, truth, tolerance)
        or first_wrong_case(masked, truth, tolerance)
    )
    if wrong:
        return failed(wrong)
    (at_once, one_by_one), S = evidence["made"], challenge["cases"][0]["k"].shape[2]
    if one_by_one <= at_once:
        return failed(
            f"S = {S}, no mask: all results are right, but with size = {challenge['cases'][0]['size']} "
            f"attend_in_parts makes {at_once} new tensors, and with size = 1 it makes {one_by_one}. What "
            f"does size change in your code?"
        )
    return passed(
        "Every cut agrees, under every mask; who sees nothing in a part loses nothing by it."
    )


def first_wrong_case(
    cases: list[tuple[Challenge, Any]], truth: Truth, tolerance: float
) -> str | None:
    """Tell the first case whose output differs; None where all agree."""
    for case, got in cases:
        question = QUESTIONS[case["stage"]]
        if wrong := wrong_output(got, truth(case), case["dtype"], tolerance, question):
            if case["mask"] is not None and np.isnan(got["numbers"]).any():
                wrong = wrong.replace(question, NAN)
            (T, S), mask = (case["q"].shape[2], case["k"].shape[2]), case["mask"]
            under = "no mask" if mask is None else f"a mask {mask.shape}"
            return f"T = {T}, S = {S}, size = {case['size']}, {under}: attend_in_parts {wrong}"
    return None


def first_wrong_pair(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> str | None:
    """Tell the first pair that is merged wrongly; None where all agree."""
    for pair, got in zip(challenge["pairs"], evidence["pairs"], strict=True):
        questions = BOTH if pair["both"] else dict.fromkeys(FIELDS, NOBODY)
        if wrong := wrong_part(got, truth(pair), "float32", tolerance, questions):
            return f"Two parts in which some queries saw nothing: merge {wrong}"
    return None
