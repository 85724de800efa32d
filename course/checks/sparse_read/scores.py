"""Check what a page's bounds say of the scores in it: that none is above, and that it is no looser."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, first_wrong, one_each, record, wrong_form
from course.checks.sparse_read.cases import TOLERANCE, Truth, draw_grouped, heads_text

ONE_HEAD = "There is one head here, and one page. Which of the two ends does each number of q want?"
NEGATIVE = "All scores are below 0 here. Which of your lines takes 0 for the least?"


def with_bounds(case: Challenge, size: int) -> Challenge:
    """Add the bounds of pages of `size` rows, which the check computes from the keys."""
    pages = np.split(case["k"], range(size, case["k"].shape[2], size), axis=2)
    least, largest = (
        np.stack([end(page, axis=2) for page in pages], axis=2) for end in (np.min, np.max)
    )
    return {**case, "size": size, "least": least, "largest": largest}


def draw_pages(rng: np.random.Generator) -> list[Challenge]:
    """Draw one head and one page, more pages, groups, rows; and scores that are all negative."""
    sizes = [
        ((1, 1, 1, 1, 3), 3),
        ((1, 1, 1, 1, 8), 3),
        ((1, 2, 2, 1, 8), 3),
        ((1, 4, 2, 1, 10), 4),
        ((1, 4, 1, 1, 7), 2),
        ((2, 6, 3, 1, int(rng.integers(9, 14))), 4),
    ]
    cases = [with_bounds(draw_grouped(rng, *shape), size) for shape, size in sizes]
    apart = draw_grouped(rng, 1, 4, 2, 1, 9)
    apart = {**apart, "q": np.abs(apart["q"]) + 1, "k": -np.abs(apart["k"]) - 1}
    return [*cases, {**with_bounds(apart, 4), "negative": True}]


def draw_two_types(seed: int) -> Challenge:
    """Draw the cases of `draw_pages`, one of them in float64 as well."""
    cases = draw_pages(np.random.default_rng(seed))
    return {"cases": [*cases, {**cases[3], "dtype": "float64"}]}


def draw_one_type(seed: int) -> Challenge:
    """Draw the cases of `draw_pages`, others than those of `draw_two_types`."""
    return {"cases": draw_pages(np.random.default_rng([seed, 1]))}


def score(student: SimpleNamespace, case: Challenge) -> torch.Tensor:
    """Score the pages of a case the student's way."""
    tensors = [
        given(case[name], getattr(torch, case["dtype"])) for name in ("q", "least", "largest")
    ]
    return student.page_scores(*tensors)


def probe_scores(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"scores": [record(score(student, case)) for case in challenge["cases"]]}


def case_text(case: Challenge) -> str:
    """Write "4 query heads on 2 KV heads, 10 rows in pages of 4"."""
    in_type = "" if case["dtype"] == "float32" else f", in {case['dtype']}"
    heads = heads_text(case["q"].shape[1], case["k"].shape[1])
    return f"{heads}, {case['k'].shape[2]} rows in pages of {case['size']}{in_type}"


def scores_of_rows(case: Challenge) -> np.ndarray:
    """Compute q · k / √D of every query head with every row, (B, H, S) in float64."""
    q, k = case["q"].astype(np.float64), case["k"].astype(np.float64)
    heads = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    return (q * heads).sum(axis=3) / np.sqrt(q.shape[3])


def loosest(case: Challenge) -> np.ndarray:
    """Compute what no sensible bound exceeds, (B, G, P): all of |q| times the largest of |k|, over the
    heads of a group."""
    reach = np.maximum(np.abs(case["least"]), np.abs(case["largest"])).max(axis=3)  # (B, G, P)
    (B, H, _, D), G = case["q"].shape, case["k"].shape[1]
    total = np.abs(case["q"]).sum(axis=3).reshape(B, G, H // G).max(axis=2)  # (B, G)
    return reach.astype(np.float64) * total[:, :, None] / np.sqrt(D)


@check("page_scores", draw=draw_two_types, probe=probe_scores, evidence=one_each(scores=RECORD))
def no_score_is_above(challenge: Challenge, evidence: Evidence) -> Verdict:
    """Compare with the scores of all rows; and with a bound that needs no look at single numbers."""
    for case, got in zip(challenge["cases"], evidence["scores"], strict=True):
        where = case_text(case)
        if wrong := wrong_form(got, case["least"].shape[:3], case["dtype"]):
            return failed(f"{where}: page_scores {wrong}")
        bounds, rows = got["numbers"], scores_of_rows(case)
        group = case["q"].shape[1] // case["k"].shape[1]
        for b, h, s in np.ndindex(rows.shape):
            bound = bounds[b, h // group, s // case["size"]]
            if not bound >= rows[b, h, s] - TOLERANCE * max(1, abs(rows[b, h, s])):
                return failed(
                    f"{where}: page {s // case['size']} has the score {bound:.4g}, but head {h} gives "
                    f"its row {s} {rows[b, h, s]:.4g} (batch row {b}). {ask_about_bound(case)}"
                )
        if place := first_place_above(bounds, loosest(case)):
            return failed(
                f"{where}: page {place[2]} has the score {bounds[place]:.4g}. Were all numbers of its "
                f"rows as large as its largest, the score would be {loosest(case)[place]:.4g}. Which "
                f"product is too large, or is counted twice?"
            )
    return passed("No row of any page has a score above its page's, for any head of the group.")


def first_place_above(bounds: np.ndarray, limit: np.ndarray) -> tuple[int, ...] | None:
    """Find the first bound that is above its limit, or no number."""
    above = np.argwhere(~(bounds <= limit + TOLERANCE * np.maximum(1, np.abs(limit))))
    return tuple(above[0].tolist()) if len(above) else None


def ask_about_bound(case: Challenge) -> str:
    """Choose the question by what is new in the case."""
    (_, H, *_), G = case["q"].shape, case["k"].shape[1]
    if "negative" in case:
        return "All scores are below 0 here. Which end suits a q above 0 best, if both are below?"
    if H > G:
        return "Where each KV head has one query head, it is right. Whose bound is the page's?"
    return (
        "For which numbers of q is the larger product at the least end, for which at the largest?"
    )


@check("page_scores", draw=draw_one_type, probe=probe_scores, evidence=one_each(scores=RECORD))
def bound_is_tight(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare with the bound that the lesson asks for."""
    for case, got in zip(challenge["cases"], evidence["scores"], strict=True):
        where, expected = case_text(case), truth(case)
        if wrong := wrong_form(got, expected.shape, case["dtype"]):
            return failed(f"{where}: page_scores {wrong}")
        if place := first_wrong(got["numbers"], expected, TOLERANCE):
            bound, right = got["numbers"][place], expected[place]
            return failed(
                f"{where}: page {place[2]} has the score {bound:.4g}; the best of its two ends, number "
                f"by number, adds up to {right:.4g} (batch row {place[0]}, KV head {place[1]}). "
                f"{ask_about_tightness(case, bound, right)}"
            )
    return passed("Each page's score is the best of its two ends, number by number.")


def ask_about_tightness(case: Challenge, bound: float, right: float) -> str:
    """Choose the question by what is new in the case, and by which side is wrong."""
    (_, H, *_), G = case["q"].shape, case["k"].shape[1]
    if "negative" in case:
        return NEGATIVE
    if H == G == 1 and case["least"].shape[2] == 1:
        return ONE_HEAD
    if H > G:
        return "Where each KV head has one query head all is right. What is the score of a group?"
    return (
        f"It is too {'large' if bound > right else 'small'}. When do you add up, and when choose?"
    )
