"""Check the bytes of a quantized cache: the formula, what the cache reports, what it really keeps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import in_words, plain
from course.checks.kv_cache.container import DTYPES, feed, stored_bytes
from course.config import GPTConfig
from course.fast.quantized import CacheBytes

PARTS = ("codes", "scales", "window")
DEFAULTS = {"batch": 1, "bits": 8, "group": 64, "window": 32, "dtype": "float16"}
"""What the signature of quantized_cache_bytes names: numbers of 2 bytes, as float16 has."""


def draw_sizes(seed: int) -> Challenge:
    """Draw caches of 8, 4 and 2 bits: of 1-token groups, too short for any group, shorter than the
    window; and a text of which nothing is told but its length."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, tokens in ((8, 5, 40), (4, 4, 30), (2, 7, 33), (4, 1, 12), (8, 16, 13)):
        heads, kv_heads = 2 * (kv := int(rng.integers(2, 4))), kv
        c = GPTConfig(40, int(rng.integers(2, 5)), 12 * heads, heads, kv_heads, 64)
        cases.append(
            {
                "config": c.to_dict(),
                "tokens": tokens + int(rng.integers(0, 5)),
                "batch": 2 + (seed + len(cases)) // 2 % 2,
                "bits": bits,
                "group": group,
                "window": int(rng.integers(3, 9)),
                "dtype": ["float32", "float16"][(seed + len(cases)) % 2],
            }
        )
    cases.append({**cases[3], "tokens": 2, "group": 1, "window": 5})
    by_default = {**cases[0], **DEFAULTS, "tokens": int(rng.integers(32 + 2 * 64, 500))}
    return {"cases": cases, "by_default": by_default}


def probe_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask the formula, fill a cache of the same sizes, and count what it keeps; and ask the formula by
    default."""
    results = []
    for case in challenge["cases"]:
        c, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        tokens, batch = case["tokens"], case["batch"]
        how = {name: case[name] for name in ("bits", "group", "window")}
        formula = student.quantized_cache_bytes(
            c, tokens, batch, **how, bytes_per_element=DTYPES[case["dtype"]]
        )
        cache = student.QuantizedKVCache(c, batch, tokens, **how, dtype=dtype)
        shape = (2, c.n_layers, batch, c.n_kv_heads, tokens, c.head_dim)
        feed(cache, np.zeros(shape, np.float32), dtype)
        results.append(
            {
                **parts_of(formula),
                "reported": plain(cache.nbytes()),
                "stored": stored_bytes(cache),
            }
        )
    case = challenge["by_default"]
    formula = student.quantized_cache_bytes(GPTConfig(**case["config"]), case["tokens"])
    return {"results": results, "by_default": parts_of(formula)}


def evidence_of_sizes(challenge: Challenge) -> Any:
    """The form of what `probe_sizes` records."""
    number = (int, float, str)
    by_default = {"form": str, "formula": [number] * 3}
    result = {**by_default, "reported": number, "stored": int}
    return {"results": [result] * len(challenge["cases"]), "by_default": by_default}


def parts_of(formula: Any) -> Evidence:
    """Turn a CacheBytes into its three numbers; of anything else, say what it is."""
    if not isinstance(formula, CacheBytes):
        return {"form": in_words(formula), "formula": [""] * 3}
    return {"form": "", "formula": [plain(part) for part in formula]}


def count_bytes(case: Challenge) -> list[int]:
    """Count bytes of codes, scales and window: of arrays of the shapes that are stored."""
    c, group, window = GPTConfig(**case["config"]), case["group"], case["window"]
    n_groups = len(range(window + group, case["tokens"] + 1, group))  # one more at each of these
    heads = (2, c.n_layers, case["batch"], c.n_kv_heads)  # of keys and values
    codes = np.zeros((*heads, n_groups * group, c.head_dim), bool).size * case["bits"] // 8
    steps = np.zeros((*heads, n_groups, c.head_dim + group), case["dtype"]).nbytes
    room = min(case["tokens"], window + group - 1)
    return [codes, steps, np.zeros((*heads, room, c.head_dim), case["dtype"]).nbytes]


QUESTIONS = {
    "codes": "Which tokens have codes, and how many codes go into a byte?",
    "scales": "How many vectors are there in a group, of keys and of values, and what does each need?",
    "window": "How many tokens can stand in full precision at most, just before a group is complete?",
}


def judge_sizes(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], list[int]]
) -> Verdict:
    """Formula, report and storage agree with `truth`: bytes of codes, scales and window of a case."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        wanted, sizes = truth(case), describe(case)
        if problem := wrong_formula(result, wanted, QUESTIONS):
            return failed(f"{sizes}: {problem}")
        if result["stored"] != sum(wanted):
            return failed(
                f"{sizes}: your cache keeps tensors of {result['stored']:,} bytes, where codes, "
                f"scales and window take {sum(wanted):,}. What is kept twice, or in more bytes than it "
                f"needs?"
            )
        if result["reported"] != sum(wanted):
            return failed(
                f"{sizes}: nbytes() gives {result['reported']}, and the tensors in your cache "
                f"occupy {sum(wanted):,}. What did nbytes() leave out, or count twice?"
            )
    case = challenge["by_default"]
    question = "Which batch, bits, group, window and bytes_per_element does the signature name?"
    if problem := wrong_formula(
        evidence["by_default"], truth(case), dict.fromkeys(PARTS, question)
    ):
        return failed(f"quantized_cache_bytes(config, {case['tokens']}): {problem}")
    return passed("Formula, nbytes() and the tensors really stored agree, part by part.")


def wrong_formula(result: Evidence, wanted: list[int], questions: dict[str, str]) -> str | None:
    """Tell the first part of the formula that is wrong, and ask its question."""
    if result["form"]:
        return f"quantized_cache_bytes gave {result['form']}, wanted is a CacheBytes."
    for name, got, want in zip(PARTS, result["formula"], wanted, strict=True):
        if isinstance(got, str):
            return f"{name} is {got}; wanted are bytes, {want:,} of them. {questions[name]}"
        if got != want or type(got) is not int:
            times = f", {got / want:.3g} times" if want and type(got) is int else ", against"
            return (
                f"{name} = {got!r}{times} the {want:,} that such a cache keeps. {questions[name]}"
            )
    return None


def describe(case: Challenge) -> str:
    """The sizes of a case, in words."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, G={c.n_kv_heads}, D={c.head_dim}, {case['tokens']} tokens, batch "
        f"{case['batch']}, {case['bits']} bits, group {case['group']}, window {case['window']}, "
        f"{case['dtype']}"
    )


bytes_match_codes_scales_window = Check(
    "bytes_match_codes_scales_window",
    ("quantized_cache_bytes", "QuantizedKVCache"),
    draw_sizes,
    probe_sizes,
    judge_sizes,
    evidence=evidence_of_sizes,
    truth=count_bytes,
)
