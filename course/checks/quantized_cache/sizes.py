"""Check the bytes of a quantized cache: the formula, what the cache reports, what it really keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import feed
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.checks.recorder import given
from course.checks.weighing import WEIGHT, dtype_name, weigh, wrong_bytes, wrong_weight
from course.fast.quantized import CacheBytes
from course.model.config import GPTConfig

PARTS = ("codes", "scales", "window")
DEFAULTS = (1, 8, 64, 32, 2)
"""Batch, bits, group, window and bytes of a number, as quantized_cache_bytes has them by default."""


def draw_sizes(seed: int) -> Challenge:
    """Draw the arguments of quantized_cache_bytes, for caches of 8, 4 and 2 bits: of 1-token groups, too
    short for any group, shorter than the window, without a window; and for the formula alone, a long
    text, a single token, and a text of which nothing is told but its length."""
    rng = np.random.default_rng(seed)
    cases: list[list[Any]] = []
    for number, (bits, group, tokens) in enumerate(
        ((8, 5, 40), (4, 4, 30), (2, 7, 33), (4, 1, 12), (8, 16, 13)), start=seed
    ):
        kv_heads, layers = int(rng.integers(2, 4)), int(rng.integers(2, 5))
        c = GPTConfig(40, layers, 24 * kv_heads, 2 * kv_heads, kv_heads, 64, max_seq_len=10_000)
        sizes = [tokens + int(rng.integers(0, 5)), 2 + number // 2 % 2, bits, group]
        window, n_bytes = int(rng.integers(3, 9)), (4, 2, 8)[number % 3]
        cases.append([c.to_dict(), *sizes, window, n_bytes])
    config, _, batch, bits, _, _, n_bytes = cases[3]
    cases.append([config, 2, batch, bits, 1, 5, n_bytes])
    cases.append([*cases[0][:5], 0, cases[0][6]])
    config, _, _, bits, _, *others = cases[1]
    long = [config, int(rng.integers(5_000, 9_000)), 1, bits, 128, *others]
    by_default = [cases[0][0], int(rng.integers(32 + 2 * 64, 500))]
    return {"cases": cases, "formula": [*cases, long, [config, 1, *long[2:]], by_default]}


def probe_sizes(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Call the formula, and weigh full caches."""
    formula = [call_formula(student, *case) for case in challenge["formula"]]
    return {"formula": formula, "cases": [weigh_cache(student, c) for c in challenge["cases"]]}


def call_formula(student: SimpleNamespace, config: dict[str, Any], *sizes: int) -> list[Any]:
    """Call quantized_cache_bytes; return its three numbers or, of anything else, what it is."""
    result = student.quantized_cache_bytes(GPTConfig(**config), *sizes)
    right = isinstance(result, CacheBytes)
    return [plain(part) for part in result] if right else [f"{in_words(result)}, no CacheBytes"] * 3


def weigh_cache(student: SimpleNamespace, case: list[Any]) -> Evidence:
    """Make a cache, fill it, and weigh it once one token more was appended, which reads what is kept; ask
    nbytes() of one in which all is pending."""
    config, tokens, batch, bits, group, window, n_bytes = case
    c, dtype = GPTConfig(**config), getattr(torch, dtype_name(n_bytes))
    how = {"bits": bits, "group": group, "window": window, "dtype": dtype}
    rows = np.zeros((2, c.n_layers, batch, c.n_kv_heads, tokens, c.head_dim), np.float32)
    make = partial(student.QuantizedKVCache, c, batch, tokens, **how)

    def fill(cache: Any) -> None:
        feed(cache, rows[..., :-1, :], dtype)
        try:
            feed(cache, rows[..., -1:, :], dtype)
        except Exception:  # who cannot read what is kept is told so elsewhere
            cache.truncate(tokens - 1)

    weight, waiting = weigh(make, fill), make()
    for layer, (keys, values) in enumerate(zip(*given(rows, dtype), strict=True)):
        waiting.append(layer, keys, values)
    return {**weight, "pending": plain(waiting.nbytes())}


def sizes_form(challenge: Challenge) -> Evidence:
    formula, weight = [[NUMBER_OR_WORDS] * 3], {**WEIGHT, "pending": NUMBER_OR_WORDS}
    n = len(challenge["cases"])
    return {"formula": formula * len(challenge["formula"]), "cases": [weight] * n}


@check(
    "quantized_cache_bytes",
    "QuantizedKVCache",
    draw=draw_sizes,
    probe=probe_sizes,
    evidence=sizes_form,
)
def bytes_match_codes_scales_window(
    challenge: Challenge, evidence: Evidence, truth: Callable[..., list[int]]
) -> Verdict:
    """Formula, report and storage agree with `truth`: bytes of codes, scales and window of a case."""
    for case, results in zip(challenge["formula"], evidence["formula"], strict=True):
        for part, got, right in zip(PARTS, results, truth(*case), strict=True):
            question = (
                "Which batch, bits, group, window and bytes_per_element does the signature name?"
            )
            if len(case) > 2 and not isinstance(got, str):
                question = ask_about_bytes(part, got, right, case)
            if wrong := wrong_bytes(got, right, question):
                return failed(f"{describe(*case)} quantized_cache_bytes: {part} {wrong}")
    for case, weight in zip(challenge["cases"], evidence["cases"], strict=True):
        if wrong := wrong_weight(weight, sum(truth(*case)), ("full",)):
            return failed(f"{describe(*case)} {wrong}")
        if weight["pending"] != weight["empty"]:
            return failed(
                f"{describe(*case)} nbytes() of the empty cache gives {weight['empty']}, and "
                f"{weight['pending']} once tokens are pending. Is what is pending part of the storage?"
            )
    return passed("Formula, nbytes() and the tensors really stored agree, part by part.")


QUESTIONS = {
    "codes": "Which tokens have codes, and how many codes go into a byte?",
    "scales": "How many vectors are there in a group, of keys and of values, and what does each need?",
    "window": "How many tokens can stand in full precision at most, just before a group is complete?",
}
ABOUT_A_HALF = {
    "codes": "Are keys and values of all rows and layers counted, and how many codes go into a byte?",
    "scales": "Does every step bring its zero along, and are keys and values of all rows and layers "
    "counted?",
    "window": "Are keys and values of all rows and layers counted, and how many bytes has a number?",
}


def ask_about_bytes(part: str, got: float, right: int, case: list[Any]) -> str:
    """Ask for the cause of a wrong count, by how many times too much or too little it is."""
    config, tokens, batch, bits, group, window, _ = case
    layers, codes = config["n_layers"], part == "codes"
    heads = got * config["n_kv_heads"] == right * config["n_heads"]
    whose = "Whose heads keep keys and values, and is anything counted twice?"
    per_byte = f"{bits} bits: how many codes go into a byte, and what is {bits} // 8?"
    few = f"{tokens} tokens, window {window}: how many groups are less than none?"
    for holds, question in (
        (got < 0, few),
        (got * 2 == right, ABOUT_A_HALF[part]),
        (1 < batch == right / (got or 1), "Is that of every batch row, or of one?"),
        (1 < layers == right / (got or 1), "Is that of every layer, or of one?"),
        (codes and got * bits in (right * 8, 0), f"{per_byte} {whose if heads else ''}"),
        (heads, whose),
        (
            part == "window" and tokens < window + group - 1 and got > right,
            "How many tokens has this text in all?",
        ),
        (codes and got == 8 * right, "Bits or bytes?"),
    ):
        if holds:
            return question.rstrip()
    return QUESTIONS[part]


def describe(config: dict[str, Any], tokens: int, *others: int) -> str:
    """Say the sizes of a case."""
    batch, bits, group, window, n_bytes = others or DEFAULTS
    c = GPTConfig(**config)
    return (
        f"L={c.n_layers}, G={c.n_kv_heads}, D={c.head_dim}, {tokens} tokens, batch {batch}, {bits} "
        f"bits, group {group}, window {window}, {dtype_name(n_bytes)}:"
    )
