"""Check the bytes of the cache: by formula, by its own count, and as it stores them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.caches import DTYPES, feed
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.weighing import WEIGHT, weigh, wrong_bytes, wrong_weight
from course.model.config import GPTConfig

QUESTIONS = {
    "formula": "Which factor is missing, one too many, or the wrong one?",
    "by_default": "Which batch and which bytes_per_element does the signature name?",
}


def draw_sizes(seed: int) -> Challenge:
    """Draw configs with batch, tokens and dtype, each small enough to allocate; and long ones, and one of
    no tokens, of which only the formula is asked."""
    rng = np.random.default_rng(seed)
    cases = []
    for number, dtype in enumerate([*DTYPES, "float32"]):
        group, kv_heads = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        heads = group * kv_heads
        config = GPTConfig(40, int(rng.integers(2, 6)), 6 * heads, heads, kv_heads, 64)
        tokens, batch = int(rng.integers(5, 40)), int(rng.integers(2, 5))
        if number == len(DTYPES):
            tokens, batch = 1, 1
        cases.append({"config": config.to_dict(), "tokens": tokens, "batch": batch, "dtype": dtype})
    long = {
        **cases[0],
        "tokens": int(rng.integers(5_000, 200_000)),
        "batch": int(rng.integers(65, 90)),
    }
    return {"cases": cases, "formula": [long, {**cases[1], "tokens": 0}]}


def probe_bytes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute the bytes of all cases, also by default; fill a cache of each small one."""
    formula, by_default, weighed = [], [], []
    for case in (*challenge["cases"], *challenge["formula"]):
        sizes = GPTConfig(**case["config"]), case["tokens"], case["batch"], DTYPES[case["dtype"]]
        formula.append(plain(student.kv_cache_bytes(*sizes)))
        by_default.append(plain(student.kv_cache_bytes(*sizes[:2])))
    for case in challenge["cases"]:
        c, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        batch, tokens = case["batch"], case["tokens"]
        rows = np.zeros((2, c.n_layers, batch, c.n_kv_heads, tokens, c.head_dim))
        make = partial(student.KVCache, c, batch, tokens, dtype=dtype)
        weighed.append(weigh(make, lambda cache, rows=rows, dtype=dtype: feed(cache, rows, dtype)))
    return {"formula": formula, "by_default": by_default, "weighed": weighed}


def bytes_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    numbers = [NUMBER_OR_WORDS] * (n + len(challenge["formula"]))
    return {"formula": numbers, "by_default": numbers, "weighed": [WEIGHT] * n}


@check("kv_cache_bytes", "KVCache", draw=draw_sizes, probe=probe_bytes, evidence=bytes_form)
def bytes_match_the_storage(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], int]
) -> Verdict:
    cases = [*challenge["cases"], *challenge["formula"]]
    for which, question in QUESTIONS.items():
        for case, result in zip(cases, evidence[which], strict=True):
            counted = case if which == "formula" else {**case, "batch": 1, "dtype": "float16"}
            if wrong := wrong_bytes(result, truth(counted), question):
                by_default = " by default" * (which == "by_default")
                return failed(f"{describe(case)}: kv_cache_bytes{by_default} {wrong}")
    for case, weight in zip(challenge["cases"], evidence["weighed"], strict=True):
        if wrong := wrong_weight(weight, truth(case)):
            return failed(f"{describe(case)}: {wrong}")
    return passed("Formula, nbytes() and the tensors really stored agree, byte for byte.")


def describe(case: Challenge) -> str:
    """Say the sizes of a case."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, "
        f"{case['tokens']:,} tokens, batch {case['batch']}, {case['dtype']}"
    )
