"""How many sequences fit: in general, and where the memory ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import plain
from course.config import GPTConfig
from course.minigpt.kv_cache import kv_cache_bytes

Bytes = Callable[[Challenge], int]
"""Of the cache of one sequence of a case."""


def one_sequence(case: Challenge) -> int:
    """By lesson 03's formula."""
    config = GPTConfig(**case["config"])
    return kv_cache_bytes(config, case["n_tokens"], 1, case.get("bytes_per_element", 2))


def draw_request(rng: np.random.Generator) -> Challenge:
    """A model, a context and the weights beside it; every size matters, and no two are equal."""
    G, group = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    H = G * group
    config = GPTConfig(1000, int(rng.integers(5, 30)), H * 2 * int(rng.integers(8, 33)), H, G, 64)
    return {
        "config": config.to_dict(),
        "n_tokens": int(rng.integers(100, 1000)),
        "weight_bytes": int(rng.integers(10**8, 10**9)),
        "bytes_per_element": int(rng.choice([1, 2, 4])),
    }


def make_draw(bytes_of: Bytes, at_the_edge: bool) -> Callable[[int], Challenge]:
    """Requests with their memory: room for a few dozen sequences and a part of one; or, with the
    width of the numbers left out, what is just enough, one byte less, and less than the weights."""

    def draw(seed: int) -> Challenge:
        rng = np.random.default_rng([seed, int(at_the_edge)])
        cases = []
        for number in range(5):
            case = draw_request(rng)
            if at_the_edge:
                del case["bytes_per_element"]
            one, n = bytes_of(case), int(rng.integers(7, 60))
            if not at_the_edge:
                spare = n * one + int(one * rng.uniform(0.55, 0.95))
            else:
                spare = [n * one, n * one - 1, 0, -1, -int(3.5 * one)][number]
            least = 1 + max(0, -spare)
            case["weight_bytes"] = max(case["weight_bytes"], least)
            cases.append({**case, "memory_bytes": case["weight_bytes"] + spare})
        return {"cases": cases}

    return draw


def probe_fitting(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    values = []
    for case in challenge["cases"]:
        sizes = [case[name] for name in ("memory_bytes", "n_tokens", "weight_bytes")]
        width = [case["bytes_per_element"]] if "bytes_per_element" in case else []
        config = GPTConfig(**case["config"])
        values.append(plain(student.max_batch_that_fits(config, *sizes, *width)))
    return {"values": values}


def said(case: Challenge) -> str:
    """The sizes of a case, in words."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, {case['n_tokens']} tokens "
        f"in {8 * case.get('bytes_per_element', 2)} bits; memory {case['memory_bytes']:,} bytes, "
        f"weights {case['weight_bytes']:,}"
    )


def make_fitting(name: str, bytes_of: Bytes, at_the_edge: bool, praise: str) -> Check:
    """`max_batch_that_fits`, judged by what fits: that many sequences, and not one more."""

    def judge(challenge: Challenge, evidence: Evidence) -> Verdict:
        for case, got in zip(challenge["cases"], evidence["values"], strict=True):
            one = bytes_of(case)
            spare = case["memory_bytes"] - case["weight_bytes"]
            if isinstance(got, str) or not math.isfinite(got) or got != int(got):
                return failed(f"{said(case)}: you return {got}; wanted is a whole number.")
            if got < 0:
                return failed(f"{said(case)}: {got:,} sequences. Can fewer than none fit?")
            if got > 0 and got * one > spare:
                return failed(
                    f"{said(case)}: {got:,} sequences need {got * one:,} bytes beside the weights, "
                    f"and {spare:,} are left. {_ask(case, got)}"
                )
            if (got + 1) * one <= spare:
                return failed(
                    f"{said(case)}: {got:,} sequences leave {spare - got * one:,} bytes free, and "
                    f"one needs {one:,}. {_ask(case, got)}"
                )
        return passed(praise)

    return Check(
        name, ("max_batch_that_fits",), make_draw(bytes_of, at_the_edge), probe_fitting, judge
    )


def _ask(case: Challenge, got: float) -> str:
    """One question, about where the number of sequences is wrong by much, or by one."""
    if case["memory_bytes"] < case["weight_bytes"]:
        return "What is there before the first sequence comes?"
    return "What does one sequence keep, in which unit, and what is in the memory beside it?"


batch_fills_the_memory = make_fitting(
    "batch_fills_the_memory",
    one_sequence,
    at_the_edge=False,
    praise="As many sequences as there is room for beside the weights, and not one more.",
)
edge_of_the_memory = make_fitting(
    "edge_of_the_memory",
    one_sequence,
    at_the_edge=True,
    praise="What fits to the byte fits; one byte less, and one sequence less; and never below 0.",
)
