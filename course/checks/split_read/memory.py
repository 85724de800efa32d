"""Attention in parts needs no memory that grows with S: what is written into new tensors is counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.attention_cases import NOT_READ, WATCHED, run_watched
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import one_each
from course.checks.split_read.recording import Truth, wrong_output

D, SIZE = 64, 256


def draw_long(seed: int) -> Challenge:
    """Draw one new token of two heads on long caches, cut into whole parts; a cache is a slice of
    more room."""
    rng = np.random.default_rng(seed)
    cases = []
    for B, n_parts in ((1, 12), (1, 9)):
        S = n_parts * SIZE
        q = rng.standard_normal((B, 2, 1, D), np.float32)
        room = rng.standard_normal((2, B, 1, S + int(rng.integers(5, 50)), D), np.float32)
        cases.append({"q": q, "room": room, "held": S, "k": room[0, :, :, :S], "mask": None})
        cases[-1]["v"] = room[1, :, :, :S]
    return {"cases": cases}


def probe_long(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Attend in parts; count the numbers of new tensors."""
    calls = []
    for case in challenge["cases"]:
        k, v = torch.tensor(case["room"])[..., : case["held"], :]
        calls.append(run_watched(student.attend_in_parts, torch.tensor(case["q"]), k, v, SIZE))
    return {"calls": calls}


@check("attend_in_parts", draw=draw_long, probe=probe_long, evidence=one_each(calls=WATCHED))
def nothing_large_is_made(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare counts with S, for the largest new tensor, and with all keys, for all together."""
    for case, got in zip(challenge["cases"], evidence["calls"], strict=True):
        S, n_keys = case["held"], case["k"].size
        where = f"B = {len(case['q'])}, 2 heads, T = 1, S = {S:,}, size = {SIZE}"
        question = "Only a right result is counted: do the checks before this one pass?"
        if wrong := wrong_output(got["out"], truth(case), "float32", tolerance, question):
            return failed(f"{where}: attend_in_parts {wrong}")
        if not got["read"]:
            return failed(f"{where}: {NOT_READ}")
        if got["count"] >= n_keys:
            return failed(
                f"{where}, D = {D}: the result is right, but into new tensors you write "
                f"{got['count']:,} numbers, and the keys are {n_keys:,}. The largest one is "
                f"{got['largest']}. Which of your lines writes keys or values once more, all at once or "
                f"part by part?"
            )
        if got["most"] >= S:
            return failed(
                f"{where}: the result is right, but one new tensor holds {got['most']:,} numbers, no "
                f"fewer than there are keys: {got['largest']}. Which of your lines makes something for "
                f"all S keys at once?"
            )
    return passed("No tensor is as long as the cache, and no key is written a second time.")
