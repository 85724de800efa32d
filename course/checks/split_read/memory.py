"""Attention in parts needs no memory that grows with S: what is written into new tensors is counted."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.attention_cases import NOT_READ, WATCHED, largest_text, run_watched
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.split_read.recording import Truth, wrong_output
from course.measure.allocations import watch_new_tensors

D, SIZE = 64, 256


def draw_long(seed: int) -> Challenge:
    """Draw one new token on long caches, two of which are cut into whole parts; a cache is a slice of
    more room. The third is a little shorter than two parts."""
    rng = np.random.default_rng(seed)
    cases = []
    for H, G, S in ((2, 1, 9 * SIZE), (2, 2, 7 * SIZE), (1, 1, 2 * SIZE - int(rng.integers(2, 9)))):
        q = rng.standard_normal((1, H, 1, D), np.float32)
        room = rng.standard_normal((2, 1, G, S + int(rng.integers(5, 50)), D), np.float32)
        cases.append({"q": q, "room": room, "held": S, "k": room[0, :, :, :S], "mask": None})
        cases[-1]["v"] = room[1, :, :, :S]
    return {"cases": cases}


def probe_long(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend in parts; count the numbers of new tensors. Do the second once more under a mask that hides
    nothing; what comes of that is another check's question, so here it may stop."""
    calls, given_tensors = [], []
    for case in challenge["cases"]:
        q, (k, v) = torch.tensor(case["q"]), torch.tensor(case["room"])[..., : case["held"], :]
        given_tensors.append((q, k, v))
        calls.append(run_watched(student.attend_in_parts, q, k, v, SIZE))
    q, k, v = given_tensors[1]
    mask = torch.ones(1, k.shape[2], dtype=torch.bool)
    with suppress(Exception), watch_new_tensors(q, k, v, mask) as made:
        student.attend_in_parts(q, k, v, SIZE, mask)
    masked = {"most": made.largest.numbers if made.largest else 0, "largest": largest_text(made)}
    return {"calls": calls, "masked": masked}


def long_form(challenge: Challenge) -> Evidence:
    calls = [WATCHED] * len(challenge["cases"])
    return {"calls": calls, "masked": {"most": int, "largest": str}}


@check("attend_in_parts", draw=draw_long, probe=probe_long, evidence=long_form)
def nothing_large_is_made(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare counts with S, for the largest new tensor, and with all keys, for all together."""
    for case, got in zip(challenge["cases"], evidence["calls"], strict=True):
        S, n_keys = case["held"], case["k"].size
        H, G = case["q"].shape[1], case["k"].shape[1]
        where = f"H = {H} on G = {G}, T = 1, S = {S:,}, size = {SIZE}"
        question = (
            "Only a right result is counted: do any_cut_any_order and parts_nobody_sees pass?"
        )
        if wrong := wrong_output(got["out"], truth(case), "float32", tolerance, question):
            return failed(f"{where}: attend_in_parts {wrong}")
        if not got["read"]:
            return failed(f"{where}: {NOT_READ}")
        if got["count"] >= n_keys:
            return failed(
                f"{where}, D = {D}: the result is right, but into new tensors you write "
                f"{got['count']:,} numbers, and the keys are {n_keys:,}. The largest one, but for axes "
                f"of 1, is {got['largest']}. How many parts do you make, and which of your lines "
                f"writes keys or values once more?"
            )
        if got["most"] >= S:
            return failed(
                f"{where}: the result is right, but one new tensor holds {got['most']:,} numbers, no "
                f"fewer than there are keys. But for axes of 1 it is {got['largest']}. Which of your "
                f"lines makes something for all S keys at once?"
            )
    S = challenge["cases"][1]["held"]
    if (masked := evidence["masked"])["most"] >= S:
        return failed(
            f"H = 2 on G = 2, T = 1, S = {S:,}, size = {SIZE}: without a mask no new tensor is too long. "
            f"Under a mask (1, S), one holds {masked['most']:,} numbers. But for axes of 1 it is "
            f"{masked['largest']}. Which of your lines writes the mask, or what it covers, once more?"
        )
    return passed("No tensor is as long as the cache, and no key is written a second time.")
