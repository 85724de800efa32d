"""Check the bytes of rows: by formula, by the cache's own count, and as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.cache_bytes import bytes_form, weigh, wrong_bytes
from course.checks.caches import DTYPES
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import plain
from course.model.config import GPTConfig


def draw_sizes(seed: int) -> Challenge:
    """Draw caches small enough to allocate; and a long one and one of no tokens, of which the formula
    alone is asked."""
    rng = np.random.default_rng(seed)
    cases = []
    for dtype in [*DTYPES, "float32"]:
        rank, d_rope = int(rng.integers(5, 12)), 2 * int(rng.integers(1, 4))
        tokens, batch = int(rng.integers(5, 40)), int(rng.integers(2, 5))
        layers = int(rng.integers(2, 6))
        cases.append(
            {"layers": layers, "rank": rank, "d_rope": d_rope, "tokens": tokens, "batch": batch,
             "dtype": dtype}
        )  # fmt: skip
    cases[-1] |= {"tokens": 1, "batch": 1}
    long = {**cases[0], "tokens": int(rng.integers(5_000, 200_000)), "rank": 512, "batch": 70}
    return {"cases": cases, "formula": [long, {**cases[1], "tokens": 0}]}


def probe_bytes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute the bytes of all cases, also by default; fill a cache of each small one."""
    formula, by_default, weighed = [], [], []
    for case in (*challenge["cases"], *challenge["formula"]):
        sizes = case["layers"], case["rank"], case["d_rope"], case["tokens"]
        n_bytes = DTYPES[case["dtype"]]
        formula.append(plain(student.latent_cache_bytes(*sizes, case["batch"], n_bytes)))
        by_default.append(plain(student.latent_cache_bytes(*sizes)))
    for case in challenge["cases"]:
        dtype, B, T = getattr(torch, case["dtype"]), case["batch"], case["tokens"]
        L, rank, d_rope = case["layers"], case["rank"], case["d_rope"]
        cache = student.LatentKVCache(
            GPTConfig(40, L, 24, 4, 4, 64), B, T, rank, d_rope, dtype=dtype
        )
        parts = torch.ones(L, B, T, rank, dtype=dtype), torch.ones(L, B, 1, T, d_rope, dtype=dtype)
        weighed.append(weigh(cache, partial(_fill, parts=parts)))
    return {"formula": formula, "by_default": by_default, "weighed": weighed}


def _fill(cache: Any, parts: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Append latents and keys, (L, B, …, T, ·) each, to every layer, and advance."""
    for layer, (c, k_rope) in enumerate(zip(*parts, strict=True)):
        cache.append(layer, c, k_rope)
    cache.advance(parts[0].shape[-2])


@check(
    "latent_cache_bytes", "LatentKVCache", draw=draw_sizes, probe=probe_bytes, evidence=bytes_form
)
def bytes_match_the_rows(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], int]
) -> Verdict:
    if wrong := wrong_bytes("latent_cache_bytes", challenge, evidence, truth, describe):
        return failed(wrong)
    return passed("Formula, nbytes() and the rows really stored agree, byte for byte.")


def describe(case: Challenge) -> str:
    """Say the sizes of a case."""
    return (
        f"L={case['layers']}, rank {case['rank']}, R {case['d_rope']}, {case['tokens']:,} tokens, "
        f"batch {case['batch']}, {case['dtype']}"
    )
