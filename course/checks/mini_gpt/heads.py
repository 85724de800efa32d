"""Challenges and verdict for cutting into heads and merging them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, failed, passed
from course.checks.mini_gpt.probes import Array, form_error

Truth = Callable[[dict[str, Any]], dict[str, Array]]
"""Gives, for a case, what its x is cut into, "split", and what its heads are merged to, "merge"."""


def draw_heads(seed: int) -> Challenge:
    """Draw sizes of heads whose numbers say where they come from; then other cases, see `more_cases`."""
    rng = np.random.default_rng(seed)
    H, D = [(2, 3), (2, 4), (3, 2), (4, 2)][rng.integers(4)]
    row, token, column = np.ogrid[:2, :5, : H * D]
    x = (100.0 * row + 10 * token + column).astype(np.float32)
    heads = draw_numbers(rng, (2, H, 5, D), "float32")
    return {"cases": [{"x": x, "heads": heads, "n_heads": H}, *more_cases(rng, length=70)]}


def more_cases(rng: np.random.Generator, length: int) -> list[dict[str, Any]]:
    """Draw one token of one text, twice, in float64; two heads in float16; and a text of `length`
    tokens."""
    alone, half = (1, int(rng.integers(2, 5)), 1, 3), (2, 2, 3, int(rng.integers(4, 7)))
    sizes = (
        (alone, "float64"),
        (alone, "float64"),
        (half, "float16"),
        ((1, 1, length, 2), "float32"),
    )
    cases = []
    for (B, H, T, D), dtype in sizes:
        x = draw_numbers(rng, (B, T, H * D), dtype)
        cases.append({"x": x, "heads": draw_numbers(rng, (B, H, T, D), dtype), "n_heads": H})
    return cases


def draw_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw an array with no number twice; whole numbers up to 2,048 are exact in float16."""
    numbers = rng.permutation(np.prod(shape)) + rng.integers(1000)
    return numbers.reshape(shape).astype(dtype)


def judge_heads(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    """Judge every split, and then every merge, number by number."""
    wanted = [truth(case) for case in challenge["cases"]]
    for case, want, out in zip(challenge["cases"], wanted, evidence["split"], strict=True):
        if wrong := wrong_split(case, want["split"], out):
            return failed(wrong)
    for case, want, out in zip(challenge["cases"], wanted, evidence["merge"], strict=True):
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
    question = "Which axis did the cut leave next to the last?"
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
