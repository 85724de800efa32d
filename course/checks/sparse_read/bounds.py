"""Check the least and the largest of every page, the last and shorter one too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words
from course.checks.recorder import given
from course.checks.recording import RECORD, first_wrong, one_each, record, wrong_form
from course.checks.sparse_read.cases import Truth

NAMES = ("least", "largest")
BOUNDS = {"kind": str, **dict.fromkeys(NAMES, RECORD)}
SAME = 1e-6
"""Two numbers that close are the same; recorded answers have seven digits."""
SIZES = ((4, 2), (6, 3), (13, 4), (16, 4), (7, 3), (5, 8), (6, 1), (9, 9), (9, 4))
"""Rows, and rows of a page."""


def draw_keys(seed: int) -> Challenge:
    """Draw keys of one page, of several and with a shorter last one; all below 0 in some, all above in
    others, of several rows and heads and of two types."""
    rng = np.random.default_rng(seed)
    cases = []
    for number, (S, size) in enumerate(SIZES):
        shift = (0, -3, 3)[number % 3] * 2
        shape = (1, 1, S, 3) if number < 2 else (2, 3, S, int(rng.integers(2, 6)))
        keys = (rng.normal(size=shape) + shift).astype(np.float32)
        dtype = "float64" if number == 4 else "float32"
        cases.append({"keys": keys, "size": size, "dtype": dtype})
    S, size = int(rng.integers(20, 40)), int(rng.integers(3, 7))
    keys = (rng.normal(size=(2, 2, S, 4)) - 6).astype(np.float32)
    return {"cases": [*cases, {"keys": keys, "size": size, "dtype": "float32"}]}


def record_bounds(result: Any, keys: Tensor) -> Evidence:
    """Record two tensors; the keys that they come from are overwritten first, as their owner may do."""
    keys.zero_()
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    kind = "" if is_pair else in_words(result)
    pair = result if is_pair else (None, None)
    return {"kind": kind, **{name: record(x) for name, x in zip(NAMES, pair, strict=True)}}


def probe_bounds(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Find the bounds of each case."""
    results = []
    for case in challenge["cases"]:
        keys = given(case["keys"], getattr(torch, case["dtype"]))
        results.append(record_bounds(student.page_bounds(keys, case["size"]), keys))
    return {"results": results}


@check("page_bounds", draw=draw_keys, probe=probe_bounds, evidence=one_each(results=BOUNDS))
def bounds_of_each_page(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Compare every number with the least or largest of its page."""
    for case, got in zip(challenge["cases"], evidence["results"], strict=True):
        S, size = case["keys"].shape[2], case["size"]
        where = f"{S} rows in pages of {size}"
        if got["kind"]:
            return failed(f"{where}: page_bounds gave {got['kind']}; expected are two tensors.")
        right = dict(zip(NAMES, truth(case), strict=True))
        for name, expected in right.items():
            if wrong := wrong_form(got[name], expected.shape, case["dtype"]):
                return failed(f"{where}: of page_bounds, {name} {wrong}")
        # Both decide, so that both tell which mistake it is.
        places = {name: first_wrong(got[name]["numbers"], right[name], SAME) for name in NAMES}
        for name, expected in right.items():
            if place := places[name]:
                return failed(
                    f"{where}: {name}[{', '.join(map(str, place))}] is {got[name]['numbers'][place]:.4g} "
                    f"and not {expected[place]:.4g}. {ask_about_page(case, name, place, got, right)}"
                )
    return passed(
        "Each page has the least and the largest of its own rows, the shorter last one too."
    )


def ask_about_page(
    case: Challenge, name: str, place: tuple[int, ...], got: Evidence, right: dict[str, np.ndarray]
) -> str:
    """Choose the question about a wrong bound: by its value, and by whether the page is full."""
    value, (_, _, page, _) = got[name]["numbers"][place], place
    S, size = case["keys"].shape[2], case["size"]
    if value == 0 and (got[name]["numbers"] == 0).all():
        return "Your caller has overwritten its keys since. Is what you return memory of its own?"
    if page == S // size and S % size:
        return f"Rows of its own in this page: {S % size}. What else did you take into account?"
    other = NAMES[name == "least"]
    if value == got[other]["numbers"][place] and size > 1:
        return "Both bounds are the same. How is each of them taken, and over how many rows?"
    if value == right[other][place] and size > 1:
        return "This is the page's other bound. Which of the two comes first?"
    return "Over which axis is it taken, and which rows belong to this page?"
