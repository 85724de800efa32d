"""Check that heads are cut out of every token, and merged again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.mini_gpt.outputs import OUTPUT, call, form_error
from course.checks.mini_gpt.sizes import draw_sizes
from course.checks.recording import Array, one_each

Truth = Callable[[dict[str, Any]], dict[str, Array]]
"""Gives, for a case, what its x is cut into, "split", and what its heads are merged to, "merge"."""


def draw_heads(seed: int) -> Challenge:
    """Draw heads whose numbers say where they come from; few and many heads, one token of one text,
    twice, in float64; two heads in float16; and a long text."""
    rng = np.random.default_rng(seed)
    size = draw_sizes(rng)
    few, D = [(2, 3), (2, 4), (3, 2), (4, 2)][rng.integers(4)]
    row, token, column = np.ogrid[:2, :5, : few * D]
    cases = [draw_case(rng, (2, few, 5, D), "float32")]
    cases[0]["x"] = (100.0 * row + 10 * token + column).astype(np.float32)
    alone, half = (1, int(rng.integers(2, 5)), 1, 3), (2, 2, 3, int(rng.integers(4, 7)))
    cases.append(draw_case(rng, tuple(size[name] for name in "BHTD"), "float32"))
    cases += [draw_case(rng, alone, "float64"), draw_case(rng, alone, "float64")]
    cases.append(draw_case(rng, half, "float16"))
    cases.append(draw_case(rng, (1, 1, int(rng.integers(1030, 1100)), 2), "float32"))
    return {"cases": cases}


def draw_case(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], dtype: str
) -> dict[str, Any]:
    """Draw an x to be cut into heads, and heads (B, H, T, D) of another one to be merged."""
    B, H, T, D = sizes
    x = draw_numbers(rng, (B, T, H * D), dtype)
    return {"x": x, "heads": draw_numbers(rng, sizes, dtype), "n_heads": H}


def draw_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw an array with no number twice; whole numbers up to 2,048 are exact in float16."""
    numbers = rng.permutation(np.prod(shape)) + rng.integers(1000)
    return numbers.reshape(shape).astype(dtype)


def probe_heads(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Split the x of each case, and merge its heads, which belong to another x."""
    cases = challenge["cases"]
    return {
        "split": [call(student.split_heads, rows_apart(c["x"]), c["n_heads"]) for c in cases],
        "merge": [call(student.merge_heads, rows_apart(c["heads"])) for c in cases],
    }


def rows_apart(array: Array) -> Tensor:
    """Make a tensor whose rows lie apart in memory, as in a slice of a batch: it is not contiguous, but
    a wrong cut by `view` goes as far as one by `reshape`, and is recognised."""
    return torch.tensor(np.repeat(array, 2, axis=0))[::2]


@check(
    "split_heads",
    "merge_heads",
    draw=draw_heads,
    probe=probe_heads,
    evidence=one_each(split=OUTPUT, merge=OUTPUT),
)
def heads_split_and_merge(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Judge every split, and then every merge, number by number."""
    expected = [truth(case) for case in challenge["cases"]]
    for case, want, out in zip(challenge["cases"], expected, evidence["split"], strict=True):
        if wrong := wrong_split(case, want["split"], out):
            return failed(wrong)
    for case, want, out in zip(challenge["cases"], expected, evidence["merge"], strict=True):
        if wrong := wrong_merge(case, want["merge"], out):
            return failed(wrong)
    return passed("Each head holds its own slice of every token, and merging puts it back.")


def wrong_split(case: dict[str, Any], heads: Array, out: Evidence) -> str | None:
    """Say which number of a split is wrong, or None."""
    x = case["x"]
    name = f"split_heads on x {x.shape} with n_heads={case['n_heads']}"
    if error := form_error(name, out, heads.shape, str(x.dtype)):
        return error
    wrong = np.argwhere(out["array"] != heads).tolist()
    if not wrong:
        return None
    b, h, t, d = wrong[0]
    got, column = out["array"][b, h, t, d], h * heads.shape[-1] + d
    question = "That is no number of x. What does your code do besides cutting?"
    if got in x:
        row, token, _ = np.argwhere(x == got)[0].tolist()
        question = (
            f"That is a number of token {token} of row {row}. Is each token cut by itself, and which "
            "axis is which afterwards?"
        )
    if got in x[b, t]:
        question = (
            "That is another number of the same token: do the numbers of one head lie side by side?"
        )
    return (
        f"{name}: in row {b}, head {h}, token {t}, number {d} should be {heads[b, h, t, d]:g}, which "
        f"is number {column} of that token; it is {got:g}. {question}"
    )


def wrong_merge(case: dict[str, Any], x: Array, out: Evidence) -> str | None:
    """Say which number of a merge is wrong, or None."""
    heads = case["heads"]
    name = f"merge_heads on {heads.shape}"
    if error := form_error(name, out, x.shape, str(heads.dtype)):
        return error
    wrong = np.argwhere(out["array"] != x).tolist()
    if not wrong:
        return None
    b, t, c = wrong[0]
    got = out["array"][b, t, c]
    question = "Which two axes must be neighbours before they merge?"
    if got in heads[b, :, t]:
        question = "That number is of the same token: which head's numbers come first?"
    return (
        f"{name}: in row {b}, token {t}, number {c} should be {x[b, t, c]:g}; it is {got:g}. "
        f"{question}"
    )
