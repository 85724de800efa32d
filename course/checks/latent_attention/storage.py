"""Check the bytes of rows: by formula, by the cache's own count, and as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.caches import DTYPES, stored_bytes
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
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
    """Compute, ask and add up the bytes of a full cache of each case; and compute them by default."""
    formula, by_default, reported, stored = [], [], [], []
    for case in (*challenge["cases"], *challenge["formula"]):
        sizes = case["layers"], case["rank"], case["d_rope"], case["tokens"]
        n_bytes = DTYPES[case["dtype"]]
        formula.append(plain(student.latent_cache_bytes(*sizes, case["batch"], n_bytes)))
        by_default.append(plain(student.latent_cache_bytes(*sizes)))
    for case in challenge["cases"]:
        dtype, (B, T) = getattr(torch, case["dtype"]), (case["batch"], case["tokens"])
        config = GPTConfig(40, case["layers"], 24, 4, 4, 64)
        cache = student.LatentKVCache(config, B, T, case["rank"], case["d_rope"], dtype=dtype)
        empty = plain(cache.nbytes())
        for layer in range(case["layers"]):
            c = torch.ones(B, T, case["rank"], dtype=dtype)
            cache.append(layer, c, torch.ones(B, 1, T, case["d_rope"], dtype=dtype))
        cache.advance(T)
        reported.append([empty, plain(cache.nbytes())])
        stored.append(stored_bytes(cache))
    return {"formula": formula, "by_default": by_default, "reported": reported, "stored": stored}


def bytes_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    of_all = [NUMBER_OR_WORDS] * (n + len(challenge["formula"]))
    reported = [[NUMBER_OR_WORDS] * 2] * n
    return {"formula": of_all, "by_default": of_all, "reported": reported, "stored": [int] * n}


@check(
    "latent_cache_bytes", "LatentKVCache", draw=draw_sizes, probe=probe_bytes, evidence=bytes_form
)
def bytes_match_the_rows(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], int]
) -> Verdict:
    """Compare formula, defaults, what is stored and what nbytes() says with `truth`."""
    cases = [*challenge["cases"], *challenge["formula"]]
    asked = zip(cases, evidence["formula"], evidence["by_default"], strict=True)
    for case, formula, by_default in asked:
        one = {**case, "batch": 1, "dtype": "float16"}
        for which, got, of in (("", formula, case), (" by default", by_default, one)):
            if wrong := _wrong_number(of, got, truth(of), f"latent_cache_bytes{which}"):
                return failed(f"{wrong} Which size is missing, or one too many?")
            if type(got) is not int:
                return failed(f"latent_cache_bytes gives {got!r}; bytes are whole numbers, an int.")
    kept = zip(challenge["cases"], evidence["stored"], evidence["reported"], strict=True)
    for case, stored, reported in kept:
        wanted = truth(case)
        if stored != wanted:
            return failed(
                f"{_words(case)}: your full cache keeps tensors of {stored:,} bytes, "
                f"{stored / wanted:.3g} times what the rows take. What is stored beside the rows, or "
                f"in which dtype?"
            )
        for when, got in zip(("empty", "full"), reported, strict=True):
            if wrong := _wrong_number(case, got, wanted, f"nbytes() of the {when} cache"):
                return failed(f"{wrong} What is allocated, and when?")
    return passed("Formula, nbytes() and the rows really stored agree, byte for byte.")


def _words(case: Challenge) -> str:
    return (
        f"L={case['layers']}, rank {case['rank']}, R {case['d_rope']}, {case['tokens']:,} tokens, "
        f"batch {case['batch']}, {case['dtype']}"
    )


def _wrong_number(case: Challenge, got: int | float | str, wanted: int, what: str) -> str | None:
    if isinstance(got, str):
        return f"{_words(case)}: {what} gave {got}; wanted is a number of bytes."
    if got != wanted:
        times = f"{got / wanted:.3g} times" if wanted else "not"
        return f"{_words(case)}: {what} gives {got:,}, which is {times} what such rows take."
    return None
