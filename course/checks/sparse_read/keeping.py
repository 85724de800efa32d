"""Check which rows are kept for ever, and that the memory of the others is free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import RECORD, one_each, record, wrong_form
from course.checks.sparse_read.cases import TOLERANCE, Truth, draw_grouped, heads_text

NAMES = ("keys", "values", "rows")
KEPT = {"kind": str, **dict.fromkeys(NAMES, RECORD)}
USED_AGAIN = 99.0
"""What the caller writes over its keys and values; no drawn number is as large."""
QUESTIONS = {
    "last": "One query, the newest, looks back at all rows. What is a row's score, and what is your "
    "slice of the recent rows where there are none?",
    "all": "One query agrees. Which rows may query t of T see, by what are scores divided, and how are "
    "weights added up?",
    "some": "All queries of the text agree. Here they are the last T of S: which rows does each see?",
    "group": "One head a group agrees. How are the weights of a group's heads joined?",
    "rows": "One KV head and one row agree. Whose scores decide, and for whom?",
    "recent": "Without recent rows it agrees. How many places do they take, and whose?",
    "fits": "All rows fit. What is kept, and how many numbers come back?",
    "later": "The last row, which only the last query sees, has by far the highest score. Over which "
    "rows does the softmax of the others go?",
    "type": "The same call agrees in float32. Which line changes the type?",
}
"""Ends the message of a case, by what is new in it."""
Wrong = str | None


def draw_kept(seed: int) -> Challenge:
    """Draw one query, all, some of them, also before a row with a far higher score; groups with one
    louder head, also of a longer text; rows; recent rows from none to the whole budget; a budget above
    S; another type."""
    rng = np.random.default_rng(seed)
    S = int(rng.integers(9, 13))
    drawn = [
        ("last", (1, 1, 1, 1, 8), 3, 0),
        ("all", (1, 1, 1, 8, 8), 3, 0),
        ("some", (1, 1, 1, 3, 9), 4, 0),
        ("group", (1, 4, 1, 3, 9), 4, 0),
        ("group", (1, 4, 1, 6, 2 * S), S, 0),
        ("rows", (2, 4, 2, 4, 2 * S), S, 0),
        ("recent", (2, 4, 2, 4, S), 4, 2),
        ("recent", (1, 4, 2, 4, S), 3, 3),
        ("recent", (2, 6, 2, S, S), 5, 1),
        ("fits", (1, 4, 2, 3, 6), 6, 2),
        ("fits", (2, 4, 2, 3, 5), 9, 7),
    ]
    cases = [draw_case(rng, *case) for case in drawn]
    cases.append(with_a_loud_end(draw_case(rng, "later", (1, 1, 1, 3, 9), 4, 0)))
    same = draw_case(rng, *drawn[6])
    return {"cases": [*cases, same, {**same, "dtype": "float64", "stage": "type"}]}


def draw_case(
    rng: np.random.Generator,
    stage: str,
    sizes: tuple[int, int, int, int, int],
    budget: int,
    recent: int,
) -> Challenge:
    """Draw queries (B, H, T, D), keys and values (B, G, S, D)."""
    case = draw_grouped(rng, *sizes)
    case["q"][:, -1] *= 2  # the last head of the last group is the loudest
    return {**case, "budget": budget, "recent": recent, "stage": stage}


def with_a_loud_end(case: Challenge) -> Challenge:
    """Let the last key have a score of hundreds with every query, of which only the last one sees it."""
    q, k = case["q"].copy(), case["k"].copy()
    q[..., 0], k[..., 0] = 1, 0
    k[..., -1, 0] = 300 * np.sqrt(q.shape[-1])
    return {**case, "q": q, "k": k}


def draw_freed(seed: int) -> Challenge:
    """Draw a cache that is cut down, also to the newest rows alone, one that fits to a row, and one that
    is smaller than the budget."""
    rng = np.random.default_rng([seed, 3])
    drawn = [("recent", (2, 4, 2, 3, 20), 5, 2), ("recent", (1, 4, 2, 3, 10), 4, 4)]
    drawn += [("fits", (1, 4, 2, 3, 8), 8, 1), ("fits", (1, 2, 1, 2, 6), 12, 0)]
    return {"cases": [draw_case(rng, *case) for case in drawn]}


def tensors_of(case: Challenge) -> list[Tensor]:
    """Make q, k and v of a case, in another order of memory."""
    return [given(case[name], getattr(torch, case["dtype"])) for name in ("q", "k", "v")]


def record_kept(result: Any) -> Evidence:
    """Record three tensors; of anything else, what it is, in words."""
    is_triple = isinstance(result, tuple | list) and len(result) == 3
    kind = "" if is_triple else in_words(result)
    three = result if is_triple else (None, None, None)
    return {"kind": kind, **{name: record(x) for name, x in zip(NAMES, three, strict=True)}}


def probe_kept(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Shrink each case."""
    kept = [
        record_kept(student.shrink(*tensors_of(case), case["budget"], case["recent"]))
        for case in challenge["cases"]
    ]
    return {"kept": kept}


def probe_freed(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Shrink each case, overwrite what it was made from, and weigh what keys and values hold."""
    kept, stored = [], []
    for case in challenge["cases"]:
        q, k, v = tensors_of(case)
        result = student.shrink(q, k, v, case["budget"], case["recent"])
        for tensor in (q, k, v):
            tensor.fill_(USED_AGAIN)
        kept.append(record_kept(result))
        pair = [x for x in result[:2] if isinstance(x, Tensor)] if not kept[-1]["kind"] else []
        storages = [x.untyped_storage() for x in pair]  # keys and values may share one
        stored.append(sum({s.data_ptr(): s.nbytes() for s in storages}.values()))
    return {"kept": kept, "stored": stored}


def case_text(case: Challenge) -> str:
    """Write "4 query heads on 2 KV heads, T = 3 of S = 9, budget 4, recent 1"."""
    (_, H, T, _), (G, S) = case["q"].shape, case["k"].shape[1:3]
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    sizes = f"T = {T} of S = {S}, budget {case['budget']}, recent {case['recent']}"
    return f"{heads_text(H, G)}, {sizes}{in_type}: shrink"


def wrong_kept(case: Challenge, got: Evidence, attended: np.ndarray, question: str) -> Wrong:
    """Say what is wrong about what was kept; None where nothing is.

    Args:
        attended: (B, G, S), what the rows got of all weights.
        question: about a wrong choice.
    """
    if got["kind"]:
        return f"gave {got['kind']}; expected are keys, values and rows."
    (B, G, S, D) = case["k"].shape
    m = min(case["budget"], S)
    if wrong := wrong_form(got["rows"], (B, G, m), "int64"):
        return f"gave rows that are wrong: it {wrong.replace('for int64 inputs', 'and not int64')}"
    for name in ("keys", "values"):
        if wrong := wrong_form(got[name], (B, G, m, D), case["dtype"]):
            return f"gave wrong {name}: it {wrong}"
    for row, head in np.ndindex(B, G):
        listed = got["rows"]["numbers"][row, head].tolist()
        place = f"(batch row {row}, KV head {head})"
        if wrong := wrong_rows(listed, attended[row, head], case["recent"]):
            if len(set(listed)) == m and sorted(listed) != listed:
                question = "In which order does topk give them?"
            return f"kept rows {listed} {place}: {wrong} {question}"
        for name, source in (("keys", case["k"]), ("values", case["v"])):
            numbers = got[name]["numbers"][row, head]
            for number, s in enumerate(listed):
                if not np.array_equal(numbers[number], source[row, head, s].astype(numbers.dtype)):
                    return (
                        f"kept rows {listed} {place}, but number {number} of its {name} is not row {s} "
                        f"of what was given. By which numbers are {name} taken, and whose are they?"
                    )
    return None


def wrong_rows(listed: list[int], attended: np.ndarray, recent: int) -> Wrong:
    """Say what is wrong about the numbers of the rows kept, by what all S rows got; None if nothing."""
    S = len(attended)
    if min(listed) < 0 or max(listed) >= S or sorted(set(listed)) != listed:
        return "these are not different numbers, rising, of the rows given."
    newest = range(max(0, S - recent), S)
    if missing := [s for s in newest if s not in listed]:
        return f"{missing[0]} is one of the {recent} newest."
    older = [s for s in listed if s < newest.start]
    left = [s for s in range(newest.start) if s not in listed]
    if older and left:
        worst, best = min(older, key=lambda s: attended[s]), max(left, key=lambda s: attended[s])
        if attended[best] > attended[worst] + TOLERANCE * max(1, attended[best]):
            return (
                f"row {worst} got weights that add up to {attended[worst]:.3g}, and row {best}, dropped, "
                f"{attended[best]:.3g}."
            )
    return None


@check("shrink", draw=draw_kept, probe=probe_kept, evidence=one_each(kept=KEPT))
def kept_are_the_most_attended(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare the rows kept with what all rows got of the weights."""
    for case, got in zip(challenge["cases"], evidence["kept"], strict=True):
        if wrong := wrong_kept(case, got, truth(case), QUESTIONS[case["stage"]]):
            return failed(f"{case_text(case)} {wrong}")
    return passed("The newest, and of the others those that these queries looked at most.")


@check("shrink", draw=draw_freed, probe=probe_freed, evidence=one_each(kept=KEPT, stored=int))
def freed(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Look at what was kept after its sources were overwritten, and at what is still held."""
    for case, got, stored in zip(
        challenge["cases"], evidence["kept"], evidence["stored"], strict=True
    ):
        question = "Does kept_are_the_most_attended pass?"
        for name in ("keys", "values"):
            if (got[name]["numbers"] == USED_AGAIN).any():
                return failed(
                    f"{case_text(case)} gave {name} in which the caller's next numbers stand. Whose "
                    f"memory is it, also where every row is kept?"
                )
        if wrong := wrong_kept(case, got, truth(case), question):
            return failed(f"{case_text(case)} {wrong}")
        (B, G, S, D) = case["k"].shape
        m = min(case["budget"], S)
        right = 2 * B * G * m * D * 4
        if stored != right:
            return failed(
                f"{case_text(case)} keeps the right {m} rows, but their keys and values hold {stored:,} "
                f"bytes of memory; {m} rows are {right:,}. What keeps the memory of the others alive?"
            )
    return passed("What is not kept is free, and what is kept belongs to nobody else.")
