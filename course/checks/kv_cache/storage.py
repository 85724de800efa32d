"""Check the bytes of the cache: by formula, by its own count, and as it stores them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.caches import DTYPES, feed, stored_bytes
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.model.config import GPTConfig


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
    """Compute, ask and add up the bytes of a full cache of each case; and compute them by default."""
    by_default, reported, stored = [], [], []
    for case in challenge["cases"]:
        config, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        batch, tokens = case["batch"], case["tokens"]
        by_default.append(plain(student.kv_cache_bytes(config, tokens)))
        cache = student.KVCache(config, batch, tokens, dtype=dtype)
        half = np.zeros((2, config.n_layers, batch, config.n_kv_heads, tokens, config.head_dim))
        empty = plain(cache.nbytes())
        feed(cache, half, dtype)
        reported.append([empty, plain(cache.nbytes())])
        stored.append(stored_bytes(cache))
    formula = [
        plain(
            student.kv_cache_bytes(
                GPTConfig(**case["config"]), case["tokens"], case["batch"], DTYPES[case["dtype"]]
            )
        )
        for case in (*challenge["cases"], *challenge["formula"])
    ]
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
        "formula": [NUMBER_OR_WORDS] * (n + len(challenge["formula"])),
        "reported": [[NUMBER_OR_WORDS] * 2] * n,
        "stored": [int] * n,
    }


def no_number(call: str, got: int | float | str) -> Verdict | None:
    """Fail what `plain` had to describe in words, or give None."""
    if isinstance(got, str):
        return failed(f"{call} gave {got}; wanted is a number of bytes. What do you return?")
    return None


@check("kv_cache_bytes", "KVCache", draw=draw_sizes, probe=probe_bytes, evidence=bytes_form)
def bytes_match_the_storage(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], int]
) -> Verdict:
    """Compare the formula, its defaults, what is stored and what nbytes() says with `truth`, the bytes of
    a case."""
    cases = [*challenge["cases"], *challenge["formula"]]
    for case, formula in zip(cases, evidence["formula"], strict=True):
        if wrong := _wrong_formula(describe(case), formula, truth(case)):
            return wrong
    for case, by_default in zip(challenge["cases"], evidence["by_default"], strict=True):
        one_row = truth({**case, "batch": 1, "dtype": "float16"})
        if by_default != one_row:
            return failed(
                f"kv_cache_bytes(config, {case['tokens']}) gives {by_default}, wanted is "
                f"{one_row:,}. Which batch and which bytes_per_element does the signature name?"
            )
    for case, stored, reported in zip(
        challenge["cases"], evidence["stored"], evidence["reported"], strict=True
    ):
        wrong = _wrong_storage(describe(case), stored, reported, truth(case))
        if wrong:
            return wrong
    return passed("Formula, nbytes() and the tensors really stored agree, byte for byte.")


def describe(case: Challenge) -> str:
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, "
        f"{case['tokens']:,} tokens, batch {case['batch']}, {case['dtype']}"
    )


def _wrong_formula(sizes: str, formula: int | float | str, wanted: int) -> Verdict | None:
    if wrong := no_number(f"{sizes}: kv_cache_bytes", formula):
        return wrong
    if formula != wanted:
        times = f"{formula / wanted:.3g} times" if wanted else "not"
        return failed(
            f"{sizes}: kv_cache_bytes gives {formula:,}, which is {times} what such a cache holds. "
            f"Which of the sizes is missing, or one too many?"
        )
    if type(formula) is not int:
        return failed(f"{sizes}: kv_cache_bytes gives {formula!r}; bytes are whole numbers.")
    return None


def _wrong_storage(
    sizes: str, stored: int, reported: list[int | float | str], wanted: int
) -> Verdict | None:
    if stored != wanted:
        what = "How many heads does it store, for how many tokens, in which dtype?"
        if wanted < stored < 2 * wanted:
            what = "What else of floats does it hold on to?"
        return failed(
            f"{sizes}: your full cache keeps tensors of {stored:,} bytes, {stored / wanted:.3g} times "
            f"what is needed. {what}"
        )
    for when, got in zip(("empty", "full"), reported, strict=True):
        if wrong := no_number(f"{sizes}: nbytes()", got):
            return wrong
        if got != wanted:
            more = _ask_about_nbytes(reported, wanted)
            return failed(
                f"{sizes}: nbytes() of the {when} cache gives {got:,}, and the storage of a cache "
                f"occupies {wanted:,}, whether filled or not. {more}"
            )
    return None


def _ask_about_nbytes(reported: list[int | float | str], wanted: int) -> str:
    empty, full = reported
    if full == wanted:
        return "The full cache gives it. When is the memory of the storage taken?"
    if isinstance(empty, str) or empty >= wanted:
        return "What is in it that is not stored, or of which size is a number taken to be?"
    return "Is all that is stored in it, and is the result in bytes?"
