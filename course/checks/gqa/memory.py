"""How many sequences fit: in general, and where the memory ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import plain
from course.config import GPTConfig
from course.minigpt.kv_cache import kv_cache_bytes

Bytes = Callable[[Challenge], int]
"""Of the cache of one sequence of a case."""


def one_sequence(case: Challenge) -> int:
    """Count the bytes of a sequence by lesson 03's formula."""
    config = GPTConfig(**case["config"])
    return kv_cache_bytes(config, case["n_tokens"], 1, case.get("bytes_per_element", 2))


def draw_request(rng: np.random.Generator) -> Challenge:
    """Draw a model, a context and the weights beside it; every size matters, and no two are equal."""
    G, group = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    H = G * group
    config = GPTConfig(1000, int(rng.integers(5, 30)), H * 2 * int(rng.integers(8, 33)), H, G, 64)
    return {
        "config": config.to_dict(),
        "n_tokens": int(rng.integers(100, 1000)),
        "weight_bytes": int(rng.integers(10**8, 10**9)),
        "bytes_per_element": int(rng.choice([1, 2, 4])),
    }


def draw_some_room(seed: int) -> Challenge:
    """Draw requests with room for a few dozen sequences and a part of one."""
    rng = np.random.default_rng([seed, 0])
    cases = []
    for _ in range(5):
        case = draw_request(rng)
        one, n = one_sequence(case), int(rng.integers(7, 60))
        cases.append(with_room(case, n * one + int(one * rng.uniform(0.55, 0.95))))
    return {"cases": cases}


def draw_edges(seed: int) -> Challenge:
    """Draw requests of the default width with room that is just enough, one byte less, none, one
    byte less than the weights, and much less than those."""
    rng = np.random.default_rng([seed, 1])
    cases = []
    for number in range(5):
        case = draw_request(rng)
        del case["bytes_per_element"]
        one, n = one_sequence(case), int(rng.integers(7, 60))
        cases.append(with_room(case, [n * one, n * one - 1, 0, -1, -int(3.5 * one)][number]))
    return {"cases": cases}


def with_room(case: Challenge, spare: int) -> Challenge:
    """Give a request a memory with so many bytes beside the weights; below 0, they do not fit."""
    weights = max(case["weight_bytes"], 1 + max(0, -spare))
    return {**case, "weight_bytes": weights, "memory_bytes": weights + spare}


def probe_fitting(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    values = []
    for case in challenge["cases"]:
        sizes = [case[name] for name in ("memory_bytes", "n_tokens", "weight_bytes")]
        width = [case["bytes_per_element"]] if "bytes_per_element" in case else []
        config = GPTConfig(**case["config"])
        values.append(plain(student.max_batch_that_fits(config, *sizes, *width)))
    return {"values": values}


def sizes_text(case: Challenge) -> str:
    """Write the sizes of a case in words."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, {case['n_tokens']} tokens "
        f"in {8 * case.get('bytes_per_element', 2)} bits; memory {case['memory_bytes']:,} bytes, "
        f"weights {case['weight_bytes']:,}"
    )


def ask_about_room(case: Challenge) -> str:
    """Choose the question of a failure: about the weights where they do not fit themselves."""
    if case["memory_bytes"] < case["weight_bytes"]:
        return "What is there before the first sequence comes?"
    return "What does one sequence keep, in which unit, and what is in the memory beside it?"


def wrong_number(challenge: Challenge, evidence: Evidence, one_sequence: Bytes) -> str | None:
    """Tell the first number that is not what fits: that many sequences, and not one more."""
    for case, got in zip(challenge["cases"], evidence["values"], strict=True):
        one, case_text = one_sequence(case), sizes_text(case)
        spare = case["memory_bytes"] - case["weight_bytes"]
        if isinstance(got, str) or not math.isfinite(got) or got != int(got):
            return f"{case_text}: you return {got}; wanted is a whole number."
        if got < 0:
            return f"{case_text}: {got:,} sequences. Can fewer than none fit?"
        if got > 0 and got * one > spare:
            return (
                f"{case_text}: {got:,} sequences need {got * one:,} bytes beside the weights, "
                f"and {spare:,} are left. {ask_about_room(case)}"
            )
        if (got + 1) * one <= spare:
            return (
                f"{case_text}: {got:,} sequences leave {spare - got * one:,} bytes free, and "
                f"one needs {one:,}. {ask_about_room(case)}"
            )
    return None


def judge_filling(challenge: Challenge, evidence: Evidence, truth: Bytes) -> Verdict:
    if wrong := wrong_number(challenge, evidence, truth):
        return failed(wrong)
    return passed("As many sequences as there is room for beside the weights, and not one more.")


def judge_edges(challenge: Challenge, evidence: Evidence, truth: Bytes) -> Verdict:
    if wrong := wrong_number(challenge, evidence, truth):
        return failed(wrong)
    return passed(
        "What fits to the byte fits; one byte less, and one sequence less; and never below 0."
    )


def form_of_values(challenge: Challenge) -> Any:
    return {"values": [(int, float, str)] * len(challenge["cases"])}


batch_fills_the_memory = Check(
    "batch_fills_the_memory",
    ("max_batch_that_fits",),
    draw_some_room,
    probe_fitting,
    judge_filling,
    evidence=form_of_values,
    truth=one_sequence,
)
edge_of_the_memory = Check(
    "edge_of_the_memory",
    ("max_batch_that_fits",),
    draw_edges,
    probe_fitting,
    judge_edges,
    evidence=form_of_values,
    truth=one_sequence,
)
