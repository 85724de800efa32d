"""Shared keys and values are read where they lie: what a call on a few new tokens writes is counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.attention_cases import NOT_READ, WATCHED, run_watched, sizes_text
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.gqa.attention import Truth, first_difference, level, refuse_enable_gqa
from course.checks.recording import one_each

WIDTH = 128
FAR = 20.0
"""A feature of queries and of keys, which makes scores of about 35 and -35."""
EXACT = 64
"""Keys of a case in a small type: equal shares of so many are exact there."""


def draw_decode_step(seed: int) -> Challenge:
    """Draw one new token on a long cache, and on a short one; two; and each under a mask; then one in
    float16. Keys and values are a slice of more room.

    Two query heads a group, and at last a single one: so few that all scores and outputs together,
    written several times, are less than the keys of the cache are.
    """
    rng = np.random.default_rng(seed)
    long, short = (105, 130), (40, 60)
    drawn = [((1, 4, 2, 1), long, False), ((2, 2, 1, 1), long, False), ((1, 2, 1, 1), short, False)]
    drawn += [((1, 2, 1, 2), long, False), ((2, 2, 1, 1), long, True), ((1, 4, 2, 2), long, True)]
    cases = [draw_case(rng, sizes, int(rng.integers(*held)), *rest) for sizes, held, *rest in drawn]
    exact = level(rng, draw_case(rng, (1, 2, 1, 1), EXACT, False), "float16", "room")
    own = draw_case(rng, (1, 1, 1, 1), int(rng.integers(*long)), False)
    return {"cases": [*cases, with_held(exact), own]}


def draw_case(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], held: int, masked: bool
) -> Challenge:
    """Draw queries, and room for more keys and values than are held.

    Under a mask the first key, which every query may see, has all the weight: here the mask is there to
    be written out, and what it hides is another check's.

    Args:
        sizes: B, H, G, T.
        masked: whether some keys are hidden, (B, 1, T, S).
    """
    B, H, G, T = sizes
    q = rng.standard_normal((B, H, T, WIDTH), np.float32)
    room = rng.standard_normal((2, B, G, 140, WIDTH), np.float32)
    mask = None
    if masked:
        mask = rng.random((B, 1, T, held)) < 0.7
        mask[..., 0] = True
        q[..., 0], room[0, ..., 0], room[0, ..., 0, 0] = FAR, -FAR, FAR
    return with_held({"q": q, "room": room, "held": held, "mask": mask, "dtype": "float32"})


def with_held(case: Challenge) -> Challenge:
    """Give a case its keys and values by name, as the truth wants them."""
    k, v = case["room"][..., : case["held"], :]
    return {**case, "k": k, "v": v, "stage": ""}


def probe_new_tensors(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    calls = []
    for case in challenge["cases"]:
        q, room = (
            torch.tensor(case[name], dtype=getattr(torch, case["dtype"])) for name in ("q", "room")
        )
        k, v = room[..., : case["held"], :]
        masks = [] if case["mask"] is None else [torch.tensor(case["mask"])]
        with refuse_enable_gqa():
            calls.append(run_watched(student.grouped_attention, q, k, v, *masks))
    return {"calls": calls}


@check(
    "grouped_attention",
    draw=draw_decode_step,
    probe=probe_new_tensors,
    evidence=one_each(calls=WATCHED),
)
def nothing_is_expanded(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["calls"], strict=True):
        where = sizes_text(case) + ", under a mask" * (case["mask"] is not None)
        question = "Only a right result is counted: do the checks before this one pass?"
        if wrong := first_difference(case, got["out"], truth(case), tolerance, question):
            return failed(wrong)
        if not got["read"]:
            return failed(f"{where}: {NOT_READ}")
        if not 0 <= got["count"] < case["k"].size:
            return failed(
                f"{where}, D = {WIDTH}: the result is right, but into new tensors you write "
                f"{got['count'] // case['k'].size} × as many numbers as the keys are "
                f"({case['k'].size:,}); scores and outputs are a small part of that. The largest new "
                f"tensor, but for axes of 1, is {got['largest']}. Which of your lines makes it, once or "
                f"again and again?"
            )
    return passed("Scores and outputs are new; keys and values are read where they lie.")
