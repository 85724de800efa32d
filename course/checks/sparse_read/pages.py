"""Check attention to chosen pages: to these rows alone, and without reading any other."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from course.checks.attention_cases import NOT_READ, WATCHED, run_watched
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, first_wrong, one_each, record, wrong_form
from course.checks.sparse_read.cases import TOLERANCE, Truth, draw_grouped, heads_text

QUESTIONS = {
    "one": "It reads one full page of one head. Which rows are those of page p, and what do their "
    "weights add up to?",
    "pages": "One page agrees. Which rows are read, and over which of them do weights add up to 1?",
    "heads": "One KV head agrees. Each KV head has a list of its own: which list meets which head?",
    "rows": "One row of the batch agrees. Which list belongs to which row?",
    "short": "Full pages agree. The last page holds fewer rows: what stands in the others' place?",
    "far": "Smaller scores agree. What is the largest weight counted from?",
    "type": "The same call agrees in float32. Which line changes the type?",
}
"""Ends the message of a case, by what is new in it."""
SMALL, LONG = 64, 4096


def draw_read(seed: int) -> Challenge:
    """Draw one page, several in any order, a list for each KV head, rows, a short last page in all lists,
    in none and in some, large scores, another type."""
    rng = np.random.default_rng(seed)
    drawn = [
        ("one", (1, 1, 1, 6), 3, 1, "", 1),
        ("pages", (1, 1, 1, 12), 3, 2, "", 1),
        ("heads", (1, 4, 2, 12), 3, 2, "", 1),
        ("rows", (2, 6, 3, 15), 3, 3, "", 1),
        ("short", (1, 2, 1, 11), 4, 2, "in", 1),
        ("short", (2, 4, 2, 13), 4, 2, "out", 1),
        ("short", (2, 4, 2, int(rng.integers(9, 12))), 4, 3, "in", 1),
        ("short", (1, 2, 2, 3), 5, 1, "in", 1),
        ("short", (2, 4, 2, 11), 4, 2, "some", 1),
        ("pages", (1, 2, 2, 7), 1, 4, "", 1),
        ("far", (1, 4, 2, 12), 3, 2, "", 100),
    ]
    cases = [draw_case(rng, *case) for case in drawn]
    same = draw_case(rng, *drawn[6])
    return {"cases": [*cases, same, {**same, "dtype": "float64", "stage": "type"}]}


def draw_case(
    rng: np.random.Generator,
    stage: str,
    sizes: tuple[int, int, int, int],
    size: int,
    n: int,
    last: str,
    spread: float,
) -> Challenge:
    """Draw queries, keys, values and lists of pages, (B, G, n), in no order.

    Args:
        sizes: B, H, G, S.
        last: whether the last page is "in" every list, "out" of every list, in "some", or "", anywhere.
        spread: by which queries are multiplied.
    """
    B, H, G, S = sizes
    case = draw_grouped(rng, B, H, G, 1, S)
    n_pages = -(-S // size)
    free = n_pages - (last != "")
    pages = np.stack([rng.permutation(free)[: n - (last == "in")] for _ in range(B * G)])
    if last == "in":
        pages = np.concatenate([pages, np.full((B * G, 1), n_pages - 1)], axis=1)
        pages = rng.permuted(pages, axis=1)
    if last == "some":
        pages[::2, 0] = n_pages - 1
    pages = pages.reshape(B, G, n).astype(np.int64)
    if stage == "one":
        pages[:] = 1
    if stage == "pages" and S == 12:
        pages[:] = (3, 1)
    return {
        **case,
        "q": case["q"] * np.float32(spread),
        "pages": pages,
        "size": size,
        "stage": stage,
    }


def tensors_of(case: Challenge) -> list[Tensor]:
    """Make q, k, v and the lists of pages, in another order of memory."""
    dtype = getattr(torch, case["dtype"])
    return [*(given(case[name], dtype) for name in ("q", "k", "v")), given(case["pages"])]


def probe_read(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Read the pages of each case."""
    cases = challenge["cases"]
    return {
        "out": [record(student.attend_pages(*tensors_of(case), case["size"])) for case in cases]
    }


def case_text(case: Challenge) -> str:
    """Write "4 query heads on 2 KV heads, 12 rows in pages of 3, pages [[[0, 2], [3, 1]]]"."""
    heads = heads_text(case["q"].shape[1], case["k"].shape[1])
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    S, pages = case["k"].shape[2], case["pages"]
    listed = (
        f"pages {pages.tolist()}" if pages.size <= 8 else f"lists of pages of shape {pages.shape}"
    )
    return f"{heads}, {S:,} rows in pages of {case['size']}, {listed}{in_type}"


def wrong_output(case: Challenge, got: Evidence, expected: np.ndarray, question: str) -> str | None:
    """Say what is wrong about an output, and ask about it; None where nothing is."""
    if wrong := wrong_form(got, expected.shape, case["dtype"]):
        return f"attend_pages {wrong}"
    if (place := first_wrong(got["numbers"], expected, TOLERANCE)) is None:
        return None
    row, head, _, feature = place
    return (
        f"attend_pages gave {got['numbers'][place]:.4g} and not {expected[place]:.4g} (batch row {row}, "
        f"head {head}, feature {feature}). {question}"
    )


@check("attend_pages", draw=draw_read, probe=probe_read, evidence=one_each(out=RECORD))
def chosen_pages_alone(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare with attention to the chosen rows, laid out in a row."""
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        if wrong := wrong_output(case, got, truth(case), QUESTIONS[case["stage"]]):
            return failed(f"{case_text(case)}: {wrong}")
    return passed("Attention to the rows of these pages, whatever their order, and to no others.")


def draw_unread(seed: int) -> Challenge:
    """Draw cases in which all rows that are not chosen are NaN or infinite; and a long one."""
    rng = np.random.default_rng([seed, 2])
    cases = []
    for number, hole in enumerate((np.nan, np.inf, -np.inf)):
        case = draw_case(rng, "rows", (2, 4, 2, 14 + number), 4, 2, ("out", "in", "")[number], 1)
        cases.append(with_holes(case, hole))
    long = draw_case(
        rng, "rows", (1, 4, 2, LONG - int(rng.integers(1, 15))), 16, SMALL // 16, "in", 1
    )
    return {"cases": [*cases, with_holes(long, np.nan)]}


def chosen_rows(case: Challenge, row: int, head: int) -> list[int]:
    """List the rows of the pages that a KV head reads."""
    S, size = case["k"].shape[2], case["size"]
    pages = case["pages"][row, head].tolist()
    return [s for page in pages for s in range(page * size, min(page * size + size, S))]


def with_holes(case: Challenge, hole: float) -> Challenge:
    """Fill all rows that are not chosen."""
    k, v = np.full_like(case["k"], hole), np.full_like(case["v"], hole)
    for row, head in np.ndindex(k.shape[:2]):
        at = chosen_rows(case, row, head)
        k[row, head, at], v[row, head, at] = case["k"][row, head, at], case["v"][row, head, at]
    return {**case, "k": k, "v": v, "hole": str(hole)}


def probe_unread(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Read; count what is written into new tensors."""
    calls = [
        run_watched(student.attend_pages, *tensors_of(case), case["size"])
        for case in challenge["cases"]
    ]
    return {"calls": calls}


@check(
    "attend_pages",
    draw=draw_unread,
    probe=probe_unread,
    evidence=lambda challenge: {"calls": [WATCHED] * len(challenge["cases"])},
)
def the_rest_is_not_read(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare outputs; then what was written for a long text with the size of its keys."""
    for case, got in zip(challenge["cases"], evidence["calls"], strict=True):
        where = f"{case_text(case)}, all other rows {case['hole']}"
        question = (
            "If chosen_pages_alone passes: which line still computes with another row, even if only "
            "with the weight 0?"
        )
        if wrong := wrong_output(case, got["out"], truth(case), question):
            return failed(f"{where}: {wrong}")
        if not got["read"]:
            return failed(f"{where}: {NOT_READ}")
    n_keys = case["k"].size
    if got["count"] >= n_keys // 4:
        return failed(
            f"{where}: the result is right, but into new tensors you write {got['count']:,} numbers, and "
            f"all keys are {n_keys:,}. The largest one, but for axes of 1, is {got['largest']}. Which "
            f"of your lines makes something for every row, chosen or not?"
        )
    return passed(
        f"{SMALL} of {case['k'].shape[2]:,} rows are read, and the others may hold anything."
    )
