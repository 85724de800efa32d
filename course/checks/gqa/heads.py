"""KV heads that are written out: each of them n_rep times in a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recorder import given
from course.checks.recording import RECORD, one_each, record, wrong_form


def draw_labelled_heads(seed: int) -> Challenge:
    """Draw heads whose numbers are all different and exact in their type; and how often each is
    wanted. Small sizes first; then sizes of 1, many heads, many copies, and every type."""
    rng = np.random.default_rng(seed)
    few, many = (int(n) for n in (rng.integers(3, 6), rng.integers(65, 90)))
    S, D = int(rng.integers(3, 6)), int(rng.choice([2, 4, 6]))
    sizes = [
        (2, 2, S, D, 2, "float32"),
        (2, 3, S, D, 1, "float32"),
        (2, 2, S, D, few, "float16"),
        (1, 1, S, D, few, "float64"),
        (3, 2, 1, 2, 3, "bfloat16"),
        (1, 3, S, 1, 2, "float32"),
        (1, 2, 1, 2, many, "float32"),
        (1, many, 1, 1, 2, "float32"),
        (1, 2, many, 1, 2, "float32"),
        (2, 2, S, D, 2, "float32"),
    ]
    cases = []
    for *shape, n_rep, dtype in sizes:
        first = int(rng.integers(0, 9))
        x = first + rng.permutation(np.prod(shape)).reshape(shape).astype(np.float32)
        cases.append({"x": x, "n_rep": n_rep, "dtype": dtype})
    return {"cases": cases}


def probe_repeat(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    asked = [
        (given(case["x"], getattr(torch, case["dtype"])), case["n_rep"])
        for case in challenge["cases"]
    ]
    return {"out": [record(student.repeat_kv(x, n_rep)) for x, n_rep in asked]}


@check(
    "repeat_kv",
    draw=draw_labelled_heads,
    probe=probe_repeat,
    evidence=one_each(out=RECORD),
)
def heads_stand_in_a_row(challenge: Challenge, evidence: Evidence, truth: Any) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["out"], strict=True):
        x, wanted = case["x"], truth(case)
        asked = f"repeat_kv of {x.shape[1]} heads, (B, G, S, D) = {x.shape}, n_rep={case['n_rep']},"
        if wrong := wrong_form(got, wanted.shape, case["dtype"]):
            return failed(f"{asked} {wrong}")
        if wrong := first_wrong_head(x, got["numbers"], wanted):
            return failed(f"{asked} {wrong}")
    return passed("Each head stands n_rep times in a row, and nothing in it moved.")


def first_wrong_head(x: np.ndarray, got: np.ndarray, wanted: np.ndarray) -> str | None:
    """Tell the first head that is another one than wanted; None where all are right."""
    for head in range(wanted.shape[1]):
        if (got[:, head] == wanted[:, head]).all():
            continue
        source, found = head_of(x, wanted[:, head]), head_of(x, got[:, head])
        if found is None:
            return (
                f"gave {wanted.shape[1]} heads. Head {head} should be head {source} of x, and is a "
                f"mixture of several heads, tokens or rows. Along which axis do you repeat, and "
                f"which axes does a reshape join?"
            )
        return (
            f"gave {wanted.shape[1]} heads. Head {head} should be head {source} of x, and is head "
            f"{found}. In which order do copies of two heads stand: a a b b, or a b a b?"
        )
    return None


def head_of(x: np.ndarray, head: np.ndarray) -> int | None:
    """Find the head of x (B, G, S, D) that is this one (B, S, D)."""
    return next((g for g in range(x.shape[1]) if (head == x[:, g]).all()), None)
