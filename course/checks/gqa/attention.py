"""Heads that are shared: which one reads which, through every mask, and without a copy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.drawing import TOLERANCE

Truth = Callable[[Challenge], np.ndarray]
"""What a case's queries read, (B, H, T, D)."""
RESULT = (np.ndarray, str)
"""The form of a recorded tensor; or, in words, what came in its place."""


def record(value: Any) -> np.ndarray | str:
    """Record the numbers of a tensor; of anything else, what it is, in words."""
    if not isinstance(value, Tensor):
        return "nothing (None)" if value is None else f"a {type(value).__name__}"
    return value.detach().cpu().numpy()


def wrong_form(got: np.ndarray | str, shape: tuple[int, ...], dtype: str) -> str | None:
    """Tell what is wrong about shape and type of a result; None where nothing is."""
    if isinstance(got, str):
        return f"gave {got}; wanted is a tensor. What do you return?"
    if got.shape != shape:
        return f"gave shape {got.shape}; wanted is {shape}. Which axis counts the heads?"
    if str(got.dtype) != dtype:
        return f"gave {got.dtype} for {dtype} inputs. What changed the type of the numbers?"
    return None


# --- repeat_kv -----------------------------------------------------------------------------------


def draw_labelled_heads(seed: int) -> Challenge:
    """Draw heads whose numbers say where they come from, 1000 · row + 100 · head + 10 · token +
    number; and how often each is wanted."""
    rng = np.random.default_rng(seed)
    cases = []
    for G, n_rep in ((2, 2), (3, 1), (2, int(rng.integers(3, 6))), (1, int(rng.integers(3, 6)))):
        B, S, D = 2, int(rng.integers(3, 6)), int(rng.choice([2, 4, 6]))
        row, head, token, number = np.ogrid[:B, :G, :S, :D]
        x = (1000 * row + 100 * head + 10 * token + number).astype(np.float32)
        cases.append({"x": x, "n_rep": n_rep, "dtype": str(rng.choice(["float32", "float16"]))})
    return {"cases": cases}


def probe_repeat(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    given = [
        (torch.from_numpy(case["x"].copy()).to(getattr(torch, case["dtype"])), case["n_rep"])
        for case in challenge["cases"]
    ]
    return {"out": [record(student.repeat_kv(x, n_rep)) for x, n_rep in given]}


def judge_repeat(challenge: Challenge, evidence: Evidence) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        x, n = case["x"].astype(case["dtype"]), case["n_rep"]
        B, G, S, D = x.shape
        asked = f"repeat_kv of {G} heads, (B, G, S, D) = {x.shape}, n_rep={n},"
        if wrong := wrong_form(got, (B, G * n, S, D), case["dtype"]):
            return failed(f"{asked} {wrong}")
        for head in range(G * n):
            source, found = head // n, got[:, head]
            if (found != x[:, source]).any():
                known = [g for g in range(G) if (found == x[:, g]).all()]
                instead = f"head {known[0]}" if known else "a mixture of several heads or tokens"
                return failed(
                    f"{asked} gave {G * n} heads. Head {head} should be head {source} of x, and is "
                    f"{instead}. In which order do copies of two heads stand: a a b b, or a b a b?"
                )
    return passed("Each head stands n_rep times in a row, and nothing in it moved.")


heads_stand_in_a_row = Check(
    "heads_stand_in_a_row",
    ("repeat_kv",),
    draw_labelled_heads,
    probe_repeat,
    judge_repeat,
    evidence=lambda challenge: {"out": [RESULT] * len(challenge["cases"])},
)

# --- grouped_attention: numbers ------------------------------------------------------------------


def draw_case(
    rng: np.random.Generator, H: int, G: int, T: int, S: int, mask: np.ndarray | None = None
) -> Challenge:
    """Draw queries, keys and values of a batch of 2, heads 6 wide; sharp enough to tell keys apart."""
    q = rng.normal(0, 2, (2, H, T, 6)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, G, S, 6)).astype(np.float32)
    return {"q": q, "k": k, "v": v, "mask": mask}


def draw_shared(seed: int) -> Challenge:
    """Draw cases without a mask: each head its own, groups of two and three, one head for all."""
    rng = np.random.default_rng(seed)
    T, S = int(rng.integers(2, 4)), int(rng.integers(5, 9))
    sizes = [(4, 4, T, T), (4, 2, 1, S), (6, 2, T, S), (6, 3, S, T), (4, 1, T, S)]
    return {"cases": [draw_case(rng, *size) for size in sizes]}


def attend(student: SimpleNamespace, case: Challenge) -> np.ndarray | str:
    """Run the student's attention on a case; the mask is left out where there is none."""
    q, k, v = (torch.from_numpy(case[name].copy()) for name in ("q", "k", "v"))
    if case["mask"] is None:
        return record(student.grouped_attention(q, k, v))
    return record(student.grouped_attention(q, k, v, torch.from_numpy(case["mask"].copy())))


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {"out": [attend(student, case) for case in challenge["cases"]]}


def repeated(case: Challenge) -> np.ndarray:
    """Run PyTorch's attention, each KV head written out for all query heads that read it."""
    per_group = case["q"].shape[1] // case["k"].shape[1]
    k, v = (torch.from_numpy(np.repeat(case[name], per_group, axis=1)) for name in ("k", "v"))
    mask = None if case["mask"] is None else torch.from_numpy(case["mask"])
    return F.scaled_dot_product_attention(torch.from_numpy(case["q"]), k, v, attn_mask=mask).numpy()


def sizes_text(case: Challenge) -> str:
    """Write "4 query heads on 2 KV heads, T = 3, S = 5"."""
    (_, H, T, _), (G, S) = case["q"].shape, case["k"].shape[1:3]
    return f"{H} query heads on {G} KV head{'s' * (G > 1)}, T = {T}, S = {S}"


def first_difference(
    case: Challenge, got: np.ndarray | str, wanted: np.ndarray, tolerance: float, question: str
) -> str | None:
    """Tell the first row, head and query that differ, and by how much; None where all agree.

    Args:
        question: ends the message where numbers differ.
    """
    if wrong := wrong_form(got, case["q"].shape, "float32"):
        return f"{sizes_text(case)}: grouped_attention {wrong}"
    delta = np.abs(got.astype(np.float64) - wanted).max(axis=3)  # (B, H, T)
    delta[~np.isfinite(delta)] = np.inf
    bad = np.argwhere(delta > tolerance)
    if not len(bad):
        return None
    row, head, query = bad[0].tolist()
    heads = sorted(set(bad[:, 1].tolist()))
    return (
        f"{sizes_text(case)}: query {query} of head {head} differs (batch row {row}, max |Δ| "
        f"{delta[row, head, query]:.2g}, tolerance {tolerance:g}); wrong heads: {heads}. {question}"
    )


def judge_shared(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    question = (
        "Every head has its own keys here, and there is no mask: how does a score become a "
        "weight, and which keys does a query see?"
    )
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        if wrong := first_difference(case, got, truth(case), tolerance, question):
            return failed(wrong)
        question = (
            "Where each head has its own keys all agrees. Which query heads are neighbours, and "
            "which KV head do they read?"
        )
    return passed("MHA, GQA and MQA: the numbers of repeated heads, for any T and S.")


grouped_equals_repeated = Check(
    "grouped_equals_repeated",
    ("grouped_attention",),
    draw_shared,
    probe_attention,
    judge_shared,
    evidence=lambda challenge: {"out": [RESULT] * len(challenge["cases"])},
    truth=repeated,
    tolerance=TOLERANCE,
)

# --- grouped_attention: masks --------------------------------------------------------------------

MASKS = {
    "(T, S)": (0, 0, 1, 1),
    "(B, 1, T, S)": (1, 0, 1, 1),
    "(B, 1, 1, S)": (1, 0, 0, 1),
    "(B, H, T, S)": (1, 1, 1, 1),
}
"""Shapes of a mask, and which of the axes B, H, T, S it has in full."""


def draw_masked(seed: int) -> Challenge:
    """Draw 6 query heads on 2 KV heads, under a mask of each shape that leaves every query a key."""
    rng = np.random.default_rng(seed)
    T, S = 3, int(rng.integers(4, 8))
    cases = []
    for name, full in MASKS.items():
        shape = tuple(size if has else 1 for size, has in zip((2, 6, T, S), full, strict=True))
        mask = rng.random(shape) < 0.5
        keys = rng.integers(0, S, shape[:-1])[..., None]
        np.put_along_axis(mask, keys, True, axis=-1)
        np.put_along_axis(mask, (keys + 1) % S, False, axis=-1)
        mask = mask[0, 0] if name == "(T, S)" else mask
        cases.append({**draw_case(rng, 6, 2, T, S, mask), "name": name})
    square = np.tril(np.ones((4, 4), dtype=bool))
    return {"cases": [{**draw_case(rng, 4, 2, 4, 4, square), "name": "(T, S)"}, *cases]}


def judge_masked(
    challenge: Challenge, evidence: Evidence, truth: Truth, tolerance: float
) -> Verdict:
    question = (
        "True is where a query may look. Which axes have your scores when the mask meets them?"
    )
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        if wrong := first_difference(case, got, truth(case), tolerance, question):
            return failed(f"A mask of shape {case['mask'].shape}, {case['name']}. {wrong}")
    return passed(f"Masks {', '.join(MASKS)}: what is hidden stays hidden, in every head.")


masks_reach_every_head = Check(
    "masks_reach_every_head",
    ("grouped_attention",),
    draw_masked,
    probe_attention,
    judge_masked,
    evidence=lambda challenge: {"out": [RESULT] * len(challenge["cases"])},
    truth=repeated,
    tolerance=TOLERANCE,
)
