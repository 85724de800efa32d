"""Check what is computed with latents in place of keys and values: scores, and their means."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, record, wrong_form

TOLERANCE = 1e-4
"""For numbers of order 1 in float32: right answers stay within 1e-5 of float64."""
Truth = Callable[[Challenge], np.ndarray]


def draw_cases(seed: int) -> Challenge:
    """Draw queries, matrices, rows and masks; smallest first. Sizes differ, so that a mixed-up axis
    shows; the last two in float64, one of them with scores of thousands."""
    rng = np.random.default_rng(seed)
    absorbed, attended = [], []
    sizes = [
        (1, 1, 1, 2, 3, 2, 1),
        (1, 3, 1, 4, 5, 2, 7),
        (2, 3, 4, 6, 5, 4, 7),
        (3, 2, 5, 4, 1, 2, 6),
    ]
    for number, (B, H, T, D, rank, R, S) in enumerate([*sizes, sizes[2], sizes[2]]):
        dtype = "float64" if number >= 4 else "float32"
        q_nope, up_k = rng.normal(size=(B, H, T, D)), rng.normal(size=(H * D, rank))
        q, rows = rng.normal(size=(B, H, T, rank + R)), rng.normal(size=(B, S, rank + R))
        q = q * (5000 if number == 5 else 1.5)
        absorbed.append({"q_nope": q_nope.astype(dtype), "up_k": up_k.astype(dtype)})
        case = {"q": q.astype(dtype), "rows": rows.astype(dtype), "rank": rank}
        case["scale"] = float(rng.uniform(0.2, 0.6))
        attended.append({**case, "mask": _draw_mask(rng, number, B, H, T, S)})
    return {"absorbed": absorbed, "attended": attended}


def _draw_mask(
    rng: np.random.Generator, number: int, B: int, H: int, T: int, S: int
) -> np.ndarray | None:
    """Draw no mask, or one of the shapes (T, S), (B, 1, T, S) and (B, H, T, S)."""
    if number < 2:
        return None
    shape = [(T, S), (B, 1, T, S), (B, H, T, S)][number % 3]
    mask = rng.random(shape) < 0.6
    mask[..., rng.integers(S)] = True
    return mask


def probe_cases(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    absorbed = [
        record(student.absorb(given(case["q_nope"]), given(case["up_k"])))
        for case in challenge["absorbed"]
    ]
    attended = []
    for case in challenge["attended"]:
        masks = [] if case["mask"] is None else [given(case["mask"])]
        q, rows = given(case["q"]), given(case["rows"])
        attended.append(record(student.attend_latent(q, rows, case["rank"], case["scale"], *masks)))
    return {"absorbed": absorbed, "attended": attended}


def cases_form(challenge: Challenge) -> Evidence:
    return {name: [RECORD] * len(challenge[name]) for name in ("absorbed", "attended")}


@check("absorb", "attend_latent", draw=draw_cases, probe=probe_cases, evidence=cases_form)
def absorbed_scores_are_the_scores(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    for case, got in zip(challenge["absorbed"], evidence["absorbed"], strict=True):
        (B, H, T, D), rank = case["q_nope"].shape, case["up_k"].shape[1]
        sizes = f"absorb with B={B}, H={H}, T={T}, D={D}, rank {rank}"
        question = "Which rows of up_k are those of head 1, and which number of a key is each?"
        if H == 1:
            question = "With one head nothing is cut. Which one product is asked for?"
        if wrong := _wrong(got, truth(case), str(case["q_nope"].dtype), tolerance, question):
            return failed(f"{sizes}: {wrong}")
    for case, got in zip(challenge["attended"], evidence["attended"], strict=True):
        (B, H, T, width), S = case["q"].shape, case["rows"].shape[1]
        mask = "no mask" if case["mask"] is None else f"a mask {case['mask'].shape}"
        sizes = (
            f"attend_latent with B={B}, H={H}, T={T}, S={S}, rank {case['rank']} of {width}, scale "
            f"{case['scale']:.2g}, {mask}"
        )
        question = _ask_about(case)
        if wrong := _wrong(got, truth(case), str(case["q"].dtype), tolerance, question):
            return failed(f"{sizes}: {wrong}")
    return passed(
        "Queries meet latents as they would meet keys, and every head reads the same rows."
    )


def _ask_about(case: Challenge) -> str:
    """Choose the question about a wrong mean; the cases before this one agree."""
    if case["rows"].shape[1] == 1:
        return "There is one row, so its share is 1. Which of its numbers come back?"
    if case["mask"] is None:
        return "Which numbers of a row are in a score, and by what is that multiplied?"
    if np.abs(case["q"]).max() > 100:
        return "Scores are thousands here. Which of your numbers are too large?"
    return "Without a mask it agrees. Where may each query look, and what do its shares add up to?"


def _wrong(
    got: Evidence, wanted: np.ndarray, dtype: str, tolerance: float, question: str
) -> str | None:
    if wrong := wrong_form(got, wanted.shape, dtype):
        return wrong
    delta = np.abs(got["numbers"].astype(np.float64) - wanted)
    delta[~np.isfinite(delta)] = np.inf
    if delta.max() <= tolerance:
        return None
    row, head, token, _ = np.argwhere(delta > tolerance)[0].tolist()
    return (
        f"first at batch row {row}, head {head}, query {token} it differs from what is computed head "
        f"by head (max |Δ| {delta[row, head, token].max():.2g}, tolerance {tolerance:g}). {question}"
    )
