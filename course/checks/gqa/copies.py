"""Shared keys and values are read where they lie: what a decode step writes is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE
from course.checks.gqa.attention import (
    RESULT,
    Truth,
    first_difference,
    record,
    repeated,
    sizes_text,
)
from course.measure.allocations import watch_new_tensors

WIDTH = 64


def draw_decode_step(seed: int) -> Challenge:
    """Draw one new token, 16 query heads; keys and values as a cache gives them, a slice of more
    room."""
    rng = np.random.default_rng(seed)
    cases = []
    for G in (2, 1):
        q = rng.normal(size=(2, 16, 1, WIDTH)).astype(np.float32)
        room = rng.normal(size=(2, 2, G, 60, WIDTH)).astype(np.float32)
        cases.append({"q": q, "room": room, "held": int(rng.integers(30, 55))})
    return {"cases": [with_held(case) for case in cases]}


def with_held(case: Challenge) -> Challenge:
    """Give a case its keys and values by name, as the truth wants them."""
    k, v = case["room"][..., : case["held"], :]
    return {**case, "k": k, "v": v, "mask": None}


def probe_new_tensors(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    out, numbers, largest, read = [], [], [], []
    for case in challenge["cases"]:
        q, room = (torch.from_numpy(case[name].copy()) for name in ("q", "room"))
        k, v = room[..., : case["held"], :]
        with watch_new_tensors(q, room) as made:
            result = student.grouped_attention(q, k, v)
        most = made.largest
        out.append(record(result))
        numbers.append(made.numbers)
        largest.append(f"{most.shape}, made by `{most.made_by}`" if most else "none")
        read.append(all(made.read))
    return {"out": out, "numbers": numbers, "largest": largest, "read": read}


def complete_form(challenge: Challenge) -> Any:
    form = {"out": RESULT, "numbers": int, "largest": str, "read": bool}
    return {name: [part] * len(challenge["cases"]) for name, part in form.items()}


def enough_numbers(case: Challenge) -> int:
    """Bound the new numbers of a decode step: twelve tensors of scores, eight of outputs, and one
    copy of the keys and values as they are. Writing out either for all query heads takes more."""
    (B, H, T, D), (G, S) = case["q"].shape, case["k"].shape[1:3]
    return 12 * B * H * T * S + 8 * B * H * T * D + 2 * B * G * S * D


def judge_copies(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    parts = (evidence[name] for name in ("out", "numbers", "largest", "read"))
    for case, got, numbers, largest, read in zip(challenge["cases"], *parts, strict=True):
        question = "Which KV head does each head read?"
        if wrong := first_difference(case, got, truth(case), tolerance, question):
            return failed(wrong)
        if not read:
            return failed(
                f"{sizes_text(case)}: the result is right, but no operation of PyTorch read queries "
                f"and keys. Where else is it computed?"
            )
        limit, keys = enough_numbers(case), case["k"].size
        if not numbers <= limit:
            return failed(
                f"{sizes_text(case)}, D = {WIDTH}: the result is right, but {numbers:,} numbers were "
                f"written into new tensors where {limit:,} are plenty. (The keys are {keys:,}; "
                f"written out for every query head, {keys * 16 // case['k'].shape[1]:,}.) The "
                f"largest new tensor is {largest}. Which of your lines makes it?"
            )
    return passed("Scores and outputs are new; keys and values are read where they lie.")


nothing_is_expanded = Check(
    "nothing_is_expanded",
    ("grouped_attention",),
    draw_decode_step,
    probe_new_tensors,
    judge_copies,
    evidence=complete_form,
    truth=repeated,
    tolerance=TOLERANCE,
)
