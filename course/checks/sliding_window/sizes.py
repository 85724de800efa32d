"""Check the bytes of a cache with a window: as they are stored, and by formula."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from course.checks.caches import DTYPES, feed, stored_bytes
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.model.config import GPTConfig

Bytes = Callable[[Challenge], int]
"""The truth: bytes of a case."""


def draw_storage(seed: int) -> Challenge:
    """Draw caches of each dtype: of a long text, and of one that is shorter than sinks and window."""
    rng = np.random.default_rng(seed)
    cases = []
    for dtype in DTYPES:
        cases.append(_sizes(rng, dtype, tokens=int(rng.integers(60, 90))))
    cases.append({**_sizes(rng, "float32", tokens=1), "batch": 1})
    cases.append({**_sizes(rng, "float16", tokens=5), "window": 40})
    cases.append({**_sizes(rng, "float32", tokens=30), "n_sinks": 0})
    return {"cases": cases}


def _sizes(rng: np.random.Generator, dtype: str, tokens: int) -> Challenge:
    kv_heads, group = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    heads = kv_heads * group
    config = GPTConfig(40, int(rng.integers(2, 5)), 6 * heads, heads, kv_heads, 64)
    window, n_sinks = int(rng.integers(3, 12)), int(rng.integers(1, 5)) if tokens > 8 else 1
    sizes = {"window": window, "n_sinks": n_sinks, "tokens": tokens, "n_full": 0}
    return {"config": config.to_dict(), **sizes, "batch": int(rng.integers(2, 5)), "dtype": dtype}


def probe_storage(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Fill a cache of each case to its last token; ask for its bytes before and after, and weigh it."""
    reported, stored = [], []
    for case in challenge["cases"]:
        config, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        sizes = (case["batch"], case["tokens"], case["window"], *_sinks(case))
        cache = student.WindowedKVCache(config, *sizes, dtype=dtype)
        empty = plain(cache.nbytes())
        shape = (2, config.n_layers, case["batch"], config.n_kv_heads, 1, config.head_dim)
        for _ in range(case["tokens"]):
            feed(cache, np.zeros(shape), dtype)
        reported.append([empty, plain(cache.nbytes())])
        stored.append(stored_bytes(cache))
    return {"reported": reported, "stored": stored}


def _sinks(case: Challenge) -> list[int]:
    """Return the number of sinks as an argument; of none, the signature's own number is asked."""
    return [case["n_sinks"]] if case["n_sinks"] else []


def storage_form(challenge: Challenge) -> Evidence:
    n = len(challenge["cases"])
    return {"reported": [[NUMBER_OR_WORDS] * 2] * n, "stored": [int] * n}


@check("WindowedKVCache", draw=draw_storage, probe=probe_storage, evidence=storage_form)
def bytes_stay(challenge: Challenge, evidence: Evidence, truth: Bytes) -> Verdict:
    """Compare what is stored, and what nbytes() says, with the bytes of a case."""
    for case, stored, reported in zip(
        challenge["cases"], evidence["stored"], evidence["reported"], strict=True
    ):
        wanted, sizes = truth(case), describe(case)
        if stored != wanted:
            return failed(
                f"{sizes}: the cache keeps tensors of {stored:,} bytes, {stored / wanted:.3g} times the "
                f"{wanted:,} that are needed. How many places does it have, and what else does it keep?"
            )
        for when, got in zip(("empty", "full"), reported, strict=True):
            if got != wanted:
                return failed(
                    f"{sizes}: nbytes() of the {when} cache gives {got}, and its storage takes "
                    f"{wanted:,}, whether filled or not. What does nbytes() count?"
                )
    return passed("However long the text, the storage keeps its size.")


def describe(case: Challenge) -> str:
    """Say the sizes of a case."""
    c = GPTConfig(**case["config"])
    full = f", {case['n_full']} layers full" if case["n_full"] else ""
    return (
        f"L={c.n_layers}{full}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, {case['tokens']:,} "
        f"tokens, batch {case['batch']}, window {case['window']:,}, {case['n_sinks']} sinks, "
        f"{case['dtype']}"
    )


def draw_formula(seed: int) -> Challenge:
    """Draw layers with a window, some or all of them full; texts shorter and longer than it, and none."""
    rng = np.random.default_rng(seed)
    short, long, some = (_sizes(rng, "float16", int(rng.integers(300, 9000))) for _ in range(3))
    n_layers = GPTConfig(**some["config"]).n_layers
    cases = [
        {**short, "tokens": 5, "window": 8, "n_sinks": 0, "batch": 1},
        {**long, "batch": 1},
        {**long, "batch": 1, "n_sinks": 0},
        {**some, "n_full": int(rng.integers(1, n_layers)), "dtype": "float32"},
        {**some, "n_full": n_layers},
        {**short, "tokens": 7, "window": 5, "n_sinks": 4},
        {**long, "tokens": 0},
        {**long, "tokens": int(rng.integers(20_000, 90_000)), "window": 4096, "dtype": "float64"},
    ]
    return {"cases": cases}


def probe_formula(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Compute the bytes of each case; those of the first three by the signature's own numbers."""
    found = []
    for number, case in enumerate(challenge["cases"]):
        config, width = GPTConfig(**case["config"]), DTYPES[case["dtype"]]
        sizes = (case["tokens"], case["window"])
        more = (case["n_sinks"], case["n_full"], case["batch"], width)
        sizes += more if number > 2 else tuple(_sinks(case))
        found.append(plain(student.windowed_cache_bytes(config, *sizes)))
    config = GPTConfig(**challenge["cases"][0]["config"])
    too_many = outcome(
        lambda: student.windowed_cache_bytes(config, 9, 4, n_full_layers=config.n_layers + 1)
    )
    return {"bytes": found, "too_many": too_many}


def formula_form(challenge: Challenge) -> Evidence:
    return {"bytes": [NUMBER_OR_WORDS] * len(challenge["cases"]), "too_many": str}


@check("windowed_cache_bytes", draw=draw_formula, probe=probe_formula, evidence=formula_form)
def bytes_by_layer(challenge: Challenge, evidence: Evidence, truth: Bytes) -> Verdict:
    """Compare the bytes of each case."""
    for case, got in zip(challenge["cases"], evidence["bytes"], strict=True):
        wanted = truth(case)
        if isinstance(got, str):
            return failed(f"{describe(case)}: windowed_cache_bytes gave {got}; wanted is a number.")
        if got != wanted:
            return failed(
                f"{describe(case)}: windowed_cache_bytes gives {got:,}, wanted are {wanted:,}. "
                f"{_ask_formula(case, got, wanted)}"
            )
        if type(got) is not int:
            return failed(f"{describe(case)}: {got!r}; bytes are whole numbers.")
    if evidence["too_many"] != "ValueError":
        return failed(
            f"More full layers than there are layers: {evidence['too_many']}, wanted is ValueError."
        )
    return passed("Full layers grow with the text, the others stop at sinks and window.")


def _ask_formula(case: Challenge, got: float, wanted: int) -> str:
    c = GPTConfig(**case["config"])
    if got * c.n_kv_heads == wanted * c.n_heads:
        return "Whose heads keep keys and values?"
    if case["tokens"] < case["n_sinks"] + case["window"] and not case["n_full"]:
        return f"How many rows can there be after {case['tokens']} tokens?"
    if case["n_full"]:
        return f"How many rows has a full layer after {case['tokens']:,} tokens, and how many are full?"
    return "How many rows has one layer, and which of the sizes is missing, or one too many?"
