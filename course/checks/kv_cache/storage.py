"""Check the bytes of the cache: by formula, by its own count, and as it stores them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.kv_cache.container import DTYPES, feed, stored_bytes
from course.config import GPTConfig


def draw_sizes(seed: int) -> Challenge:
    """Draw three configs with batch, tokens and dtype, each small enough to allocate."""
    rng = np.random.default_rng(seed)
    cases = []
    for dtype in DTYPES:
        group, kv_heads = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        heads = group * kv_heads
        config = GPTConfig(40, int(rng.integers(2, 6)), 6 * heads, heads, kv_heads, 64)
        tokens, batch = int(rng.integers(5, 40)), int(rng.integers(2, 5))
        cases.append({"config": config.to_dict(), "tokens": tokens, "batch": batch, "dtype": dtype})
    return {"cases": cases}


def probe_bytes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute, ask and add up the bytes of a full cache of each case; and compute them by default."""
    by_default, formula, reported, stored = [], [], [], []
    for case in challenge["cases"]:
        config, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        batch, tokens = case["batch"], case["tokens"]
        width = DTYPES[case["dtype"]]
        formula.append(plain(student.kv_cache_bytes(config, tokens, batch, width)))
        by_default.append(plain(student.kv_cache_bytes(config, tokens)))
        cache = student.KVCache(config, batch, tokens, dtype=dtype)
        feed(cache, np.zeros(block_shape(case), np.float32), dtype)
        reported.append(plain(cache.nbytes()))
        stored.append(stored_bytes(cache))
    return {
        "by_default": by_default,
        "formula": formula,
        "reported": reported,
        "stored": stored,
    }


def bytes_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    return {
        "by_default": [NUMBER_OR_WORDS] * n,
        "formula": [NUMBER_OR_WORDS] * n,
        "reported": [NUMBER_OR_WORDS] * n,
        "stored": [int] * n,
    }


def block_shape(case: Challenge) -> tuple[int, ...]:
    """Give the shape of all keys and values of a full cache, (2, L, B, G, S, D)."""
    c = GPTConfig(**case["config"])
    return (2, c.n_layers, case["batch"], c.n_kv_heads, case["tokens"], c.head_dim)


def no_number(call: str, got: int | float | str) -> Verdict | None:
    """Fail what `plain` had to describe in words, or give None."""
    if isinstance(got, str):
        return failed(f"{call} gave {got}; wanted is a number of bytes. What do you return?")
    return None


def judge_bytes(challenge: Challenge, evidence: Evidence) -> Verdict:
    for i, case in enumerate(challenge["cases"]):
        # What was put in, and no formula: the bytes of all blocks that were fed.
        wanted = np.zeros(block_shape(case), case["dtype"]).nbytes
        c = GPTConfig(**case["config"])
        sizes = (
            f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, "
            f"{case['tokens']} tokens, batch {case['batch']}, {case['dtype']}"
        )
        formula, reported = evidence["formula"][i], evidence["reported"][i]
        if wrong := no_number(f"{sizes}: kv_cache_bytes", formula):
            return wrong
        if formula != wanted:
            return failed(
                f"{sizes}: kv_cache_bytes gives {formula:,}, which is {formula / wanted:.3g} times "
                f"what such a cache holds. Which of the sizes is missing, or one too many?"
            )
        if type(formula) is not int:
            return failed(f"{sizes}: kv_cache_bytes gives {formula!r}; bytes are whole numbers.")
        one_row = np.zeros(block_shape({**case, "batch": 1}), np.float16).nbytes
        if evidence["by_default"][i] != one_row:
            return failed(
                f"kv_cache_bytes(config, {case['tokens']}) gives {evidence['by_default'][i]}, wanted "
                f"is {one_row:,}. Which batch and which bytes_per_element does the signature name?"
            )
        if evidence["stored"][i] != wanted:
            return failed(
                f"{sizes}: your full cache keeps tensors of {evidence['stored'][i]:,} bytes, "
                f"{evidence['stored'][i] / wanted:.3g} times what is needed. How many heads does it "
                f"store, for how many tokens, in which dtype?"
            )
        if wrong := no_number(f"{sizes}: nbytes()", reported):
            return wrong
        if reported != wanted:
            return failed(
                f"{sizes}: nbytes() gives {reported:,}, and the tensors in your cache "
                f"occupy {wanted:,}. What did nbytes() leave out?"
            )
    return passed("Formula, nbytes() and the tensors really stored agree, byte for byte.")


bytes_match_the_storage = Check(
    "bytes_match_the_storage",
    ("kv_cache_bytes", "KVCache"),
    draw_sizes,
    probe_bytes,
    judge_bytes,
    evidence=bytes_form,
)
