"""Shared keys and values are read where they lie: what a decode step writes is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE
from course.checks.gqa.attention import Truth, first_difference, sizes_text
from course.checks.gqa.recording import RECORD, record
from course.checks.recorded import Recorded
from course.measure.allocations import NewTensors, watch_new_tensors

WIDTH = 64


def draw_decode_step(seed: int) -> Challenge:
    """Draw one new token on a long cache: keys and values are a slice of more room.

    Two query heads a group: so few that all scores and outputs together, written several times, are
    less than the keys of the cache are.
    """
    rng = np.random.default_rng(seed)
    cases = []
    for B, H, G in ((1, 8, 4), (2, 2, 1)):
        q = rng.standard_normal((B, H, 1, WIDTH), np.float32)
        room = rng.standard_normal((2, B, G, 170, WIDTH), np.float32)
        cases.append(with_held({"q": q, "room": room, "held": int(rng.integers(130, 160))}))
    return {"cases": cases}


def with_held(case: Challenge) -> Challenge:
    """Give a case its keys and values by name, as the truth wants them."""
    k, v = case["room"][..., : case["held"], :]
    return {**case, "k": k, "v": v, "mask": None, "dtype": "float32", "stage": ""}


def probe_new_tensors(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    out, times, largest, read = [], [], [], []
    for case in challenge["cases"]:
        q, room = (torch.from_numpy(case[name].copy()) for name in ("q", "room"))
        k, v = room[..., : case["held"], :]
        with watch_new_tensors(q, room) as made:
            result = student.grouped_attention(q, k, v)
        out.append(record(result))
        times.append(made.numbers // k.numel())
        largest.append(largest_text(made))
        read.append(all(made.read))
    return {"out": out, "times": times, "largest": largest, "read": read}


def largest_text(made: NewTensors) -> str:
    """Write "(4, 2, 64), made by `clone`", without axes of size 1."""
    if (most := made.largest) is None:
        return "none"
    return f"{tuple(size for size in most.shape if size > 1)}, made by `{most.made_by}`"


def complete_form(challenge: Challenge) -> Any:
    form = {"out": RECORD, "times": int, "largest": str, "read": bool}
    return {name: [part] * len(challenge["cases"]) for name, part in form.items()}


def judge_copies(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    parts = (evidence[name] for name in ("out", "times", "largest", "read"))
    for case, got, times, largest, read in zip(challenge["cases"], *parts, strict=True):
        question = "Only a right result is counted: do the checks before this one pass?"
        if wrong := first_difference(case, got, truth(case), tolerance, question):
            return failed(wrong)
        if not read:
            return failed(
                f"{sizes_text(case)}: the result is right, but no operation of PyTorch read queries "
                f"and keys, and others cannot be counted. Which of your lines leave PyTorch?"
            )
        if times != 0:
            return failed(
                f"{sizes_text(case)}, D = {WIDTH}: the result is right, but into new tensors you "
                f"write {times} × as many numbers as the keys are ({case['k'].size:,}); "
                f"scores and outputs are a small part of that. The largest new tensor, but for axes "
                f"of 1, is {largest}. Which of your lines makes it, once or again and again?"
            )
    return passed("Scores and outputs are new; keys and values are read where they lie.")


nothing_is_expanded = Check(
    "nothing_is_expanded",
    ("grouped_attention",),
    draw_decode_step,
    probe_new_tensors,
    judge_copies,
    evidence=complete_form,
    truth=Recorded("gqa", "nothing_is_expanded"),
    tolerance=TOLERANCE,
)
