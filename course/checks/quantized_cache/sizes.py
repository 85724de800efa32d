"""Check the bytes of a quantized cache: the formula, what the cache reports, what it really keeps."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import DTYPES, feed, stored_bytes
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import in_words, plain
from course.fast.quantized import CacheBytes
from course.model.config import GPTConfig

PARTS = ("codes", "scales", "window")
DEFAULTS = {"batch": 1, "bits": 8, "group": 64, "window": 32, "dtype": "float16"}
"""What the signature of quantized_cache_bytes names: numbers of 2 bytes, as float16 has."""


def draw_sizes(seed: int) -> Challenge:
    """Draw caches of 8, 4 and 2 bits: of 1-token groups, too short for any group, shorter than the
    window; sizes of which only the formula is asked, long ones and a single token; and a text of which
    nothing is told but its length."""
    rng = np.random.default_rng(seed)
    cases = []
    for bits, group, tokens in ((8, 5, 40), (4, 4, 30), (2, 7, 33), (4, 1, 12), (8, 16, 13)):
        heads, kv_heads = 2 * (kv := int(rng.integers(2, 4))), kv
        layers = int(rng.integers(2, 5))
        c = GPTConfig(40, layers, 12 * heads, heads, kv_heads, 64, max_seq_len=10_000)
        cases.append(
            {
                "config": c.to_dict(),
                "tokens": tokens + int(rng.integers(0, 5)),
                "batch": 2 + (seed + len(cases)) // 2 % 2,
                "bits": bits,
                "group": group,
                "window": int(rng.integers(3, 9)),
                "dtype": ["float32", "float16", "float64"][(seed + len(cases)) % 3],
            }
        )
    cases.append({**cases[3], "tokens": 2, "group": 1, "window": 5})
    long = {**cases[1], "batch": 1, "tokens": int(rng.integers(5_000, 9_000)), "group": 128}
    by_default = {**cases[0], **DEFAULTS, "tokens": int(rng.integers(32 + 2 * 64, 500))}
    return {"cases": cases, "formula": [long, {**long, "tokens": 1}], "by_default": by_default}


def probe_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask the formula, fill a cache of the same sizes, and count what it keeps; and ask the formula by
    default."""
    results = []
    for case in challenge["cases"]:
        c, dtype = GPTConfig(**case["config"]), getattr(torch, case["dtype"])
        tokens, batch = case["tokens"], case["batch"]
        how = {name: case[name] for name in ("bits", "group", "window")}
        cache = student.QuantizedKVCache(c, batch, tokens, **how, dtype=dtype)
        shape = (2, c.n_layers, batch, c.n_kv_heads, tokens, c.head_dim)
        feed(cache, np.zeros(shape, np.float32), dtype)
        reported, stored = plain(cache.nbytes()), stored_bytes(cache)
        results.append({**ask_formula(student, case), "reported": reported, "stored": stored})
    case = challenge["by_default"]
    formula = student.quantized_cache_bytes(GPTConfig(**case["config"]), case["tokens"])
    return {
        "results": results,
        "formula": [ask_formula(student, case) for case in challenge["formula"]],
        "by_default": parts_of(formula),
    }


def ask_formula(student: SimpleNamespace, case: Challenge) -> Evidence:
    """Call the student's quantized_cache_bytes for a case."""
    how = {name: case[name] for name in ("bits", "group", "window")}
    sizes = GPTConfig(**case["config"]), case["tokens"], case["batch"]
    width = DTYPES[case["dtype"]]
    return parts_of(student.quantized_cache_bytes(*sizes, **how, bytes_per_element=width))


def evidence_of_sizes(challenge: Challenge) -> Any:
    """The form of what `probe_sizes` records."""
    number = (int, float, str)
    by_default = {"form": str, "formula": [number] * 3}
    result = {**by_default, "reported": number, "stored": int}
    n, m = len(challenge["cases"]), len(challenge["formula"])
    return {"results": [result] * n, "formula": [by_default] * m, "by_default": by_default}


def parts_of(formula: Any) -> Evidence:
    """Turn a CacheBytes into its three numbers; of anything else, say what it is."""
    if not isinstance(formula, CacheBytes):
        return {"form": in_words(formula), "formula": [""] * 3}
    return {"form": "", "formula": [plain(part) for part in formula]}


@check(
    "quantized_cache_bytes",
    "QuantizedKVCache",
    draw=draw_sizes,
    probe=probe_sizes,
    evidence=evidence_of_sizes,
)
def bytes_match_codes_scales_window(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], list[int]]
) -> Verdict:
    """Formula, report and storage agree with `truth`: bytes of codes, scales and window of a case."""
    for case, result in zip(challenge["cases"], evidence["results"], strict=True):
        wanted, sizes = truth(case), describe(case)
        if problem := wrong_formula(result, wanted, case):
            return failed(f"{sizes}: {problem}")
        if result["stored"] != sum(wanted):
            question = (
                "What is kept twice, or in more bytes than it needs?"
                if result["stored"] > sum(wanted)
                else "What has too little room, or too few steps?"
            )
            return failed(
                f"{sizes}: your cache keeps tensors of {result['stored']:,} bytes, where codes, "
                f"scales and window take {sum(wanted):,}. {question}"
            )
        if result["reported"] != sum(wanted):
            return failed(
                f"{sizes}: nbytes() gives {result['reported']}, and the tensors in your cache "
                f"occupy {sum(wanted):,}. What did nbytes() leave out, or count twice?"
            )
    for case, result in zip(challenge["formula"], evidence["formula"], strict=True):
        if problem := wrong_formula(result, truth(case), case):
            return failed(f"{describe(case)}: {problem}")
    case = challenge["by_default"]
    if problem := wrong_formula(evidence["by_default"], truth(case), None):
        return failed(f"quantized_cache_bytes(config, {case['tokens']}): {problem}")
    return passed("Formula, nbytes() and the tensors really stored agree, part by part.")


def wrong_formula(result: Evidence, wanted: list[int], case: Challenge | None) -> str | None:
    """Tell the first part of the formula that is wrong, and ask a question.

    Args:
        case: None where the formula was called with its defaults.
    """
    if result["form"]:
        return f"quantized_cache_bytes gave {result['form']}, wanted is a CacheBytes."
    for name, got, want in zip(PARTS, result["formula"], wanted, strict=True):
        if isinstance(got, str):
            return f"{name} is {got}; wanted are bytes, {want:,} of them."
        if type(got) is not int:
            return (
                f"{name} = {got!r}, wanted are {want:,} bytes. Which division leaves whole numbers?"
            )
        if got != want:
            times = f", {got / want:.3g} times" if want else ", against"
            question = (
                ask_about_bytes(case, name, got, want)
                if case
                else "Which batch, bits, group, window and bytes_per_element does the signature name?"
            )
            return f"{name} = {got:,}{times} the {want:,} that such a cache keeps. {question}"
    return None


QUESTIONS = {
    "codes": "Which tokens have codes, and how many codes go into a byte?",
    "scales": "How many vectors are there in a group, of keys and of values, and what does each need?",
    "window": "How many tokens can stand in full precision at most, just before a group is complete?",
}


def ask_about_bytes(case: Challenge, name: str, got: int, want: int) -> str:
    """Ask for the cause of a wrong count, by how many times too much or too little it is."""
    c = GPTConfig(**case["config"])
    if got < 0:
        return (
            f"{case['tokens']} tokens, window {case['window']}: how many groups are less than none?"
        )
    if got * 2 == want:
        return {
            "codes": "Are keys and values counted, and how many codes go into a byte?",
            "scales": "Does every step bring its zero along, and are keys and values counted?",
            "window": "Are keys and values counted, and how many bytes has a number?",
        }[name]
    for factor, what in ((case["batch"], "batch row"), (c.n_layers, "layer")):
        if factor > 1 and got * factor == want:
            return f"Is that of every {what}, or of one?"
    by_query_heads = got * c.n_kv_heads == want * c.n_heads
    if name == "codes" and got * case["bits"] in (want * 8, 0):
        heads = " And whose heads keep keys and values?" if by_query_heads else ""
        bits = case["bits"]
        return f"{bits} bits: how many codes go into a byte, and what is {bits} // 8?{heads}"
    if by_query_heads:
        return "Whose heads keep keys and values?"
    if name == "codes" and got == 8 * want:
        return "Bits or bytes?"
    return QUESTIONS[name]


def describe(case: Challenge) -> str:
    """The sizes of a case, in words."""
    c = GPTConfig(**case["config"])
    return (
        f"L={c.n_layers}, G={c.n_kv_heads}, D={c.head_dim}, {case['tokens']} tokens, batch "
        f"{case['batch']}, {case['bits']} bits, group {case['group']}, window {case['window']}, "
        f"{case['dtype']}"
    )
