"""Attention in parts needs no memory that grows with S: what is written into new tensors is counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.attention_cases import largest_text
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import one_each
from course.checks.split_read.recording import RECORD, Truth, record, wrong_output
from course.measure.allocations import watch_new_tensors

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
    out, counts, most, largest, read = [], [], [], [], []
    for case in challenge["cases"]:
        q, room = torch.tensor(case["q"]), torch.tensor(case["room"])
        k, v = room[..., : case["held"], :]
        with watch_new_tensors(q, room) as made:
            result = student.attend_in_parts(q, k, v, SIZE)
        out.append(record(result))
        counts.append(made.numbers)
        most.append(made.largest.numbers if made.largest else 0)
        largest.append(largest_text(made))
        read.append(all(made.read))
    return {"out": out, "counts": counts, "most": most, "largest": largest, "read": read}


@check(
    "attend_in_parts",
    draw=draw_long,
    probe=probe_long,
    evidence=one_each(out=RECORD, counts=int, most=int, largest=str, read=bool),
)
def nothing_large_is_made(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    """Compare counts with S, for the largest new tensor, and with all keys, for all together."""
    parts = (evidence[name] for name in ("out", "counts", "most", "largest", "read"))
    for case, got, count, most, largest, read in zip(challenge["cases"], *parts, strict=True):
        S, n_keys = case["held"], case["k"].size
        where = f"B = {len(case['q'])}, 2 heads, T = 1, S = {S:,}, size = {SIZE}"
        question = "Only a right result is counted: do the checks before this one pass?"
        if wrong := wrong_output(got, truth(case), "float32", tolerance, question):
            return failed(f"{where}: attend_in_parts {wrong}")
        if not read:
            return failed(
                f"{where}: the result is right, but no operation of PyTorch read queries and keys, and "
                f"others cannot be counted. Which of your lines leave PyTorch?"
            )
        if count >= n_keys:
            return failed(
                f"{where}, D = {D}: the result is right, but into new tensors you write {count:,} "
                f"numbers, and the keys are {n_keys:,}. The largest one is {largest}. Which of your "
                f"lines writes keys or values once more, all at once or part by part?"
            )
        if most >= S:
            return failed(
                f"{where}: the result is right, but one new tensor holds {most:,} numbers, no fewer "
                f"than there are keys: {largest}. Which of your lines makes something for all S keys "
                f"at once?"
            )
    return passed("No tensor is as long as the cache, and no key is written a second time.")
