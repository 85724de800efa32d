"""Check the count of what a cache copies that grows by `torch.cat`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.model.config import GPTConfig


def draw_lengths(seed: int) -> Challenge:
    """Draw configs with a batch and a number of tokens: 1 to begin with, then more, then none."""
    rng = np.random.default_rng(seed)
    cases = []
    for tokens in (1, 2, int(rng.integers(5, 12)), int(rng.integers(1500, 4000)), 0):
        kv_heads = int(rng.choice([2, 4]))
        heads = 3 * kv_heads
        config = GPTConfig(40, int(rng.choice([5, 7])), 8 * heads, heads, kv_heads, 64)
        batch = 1 if tokens == 2 else int(rng.integers(2, 5))
        cases.append({"config": config.to_dict(), "tokens": tokens, "batch": batch})
    return {"cases": cases}


def probe_copies(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Count what each case copies, and the same for one row, by default."""
    counted, by_default = [], []
    for case in challenge["cases"]:
        config = GPTConfig(**case["config"])
        counted.append(plain(student.numbers_copied(config, case["tokens"], case["batch"])))
        by_default.append(plain(student.numbers_copied(config, case["tokens"])))
    return {"counted": counted, "by_default": by_default}


def copies_form(challenge: Challenge) -> Evidence:
    return dict.fromkeys(("counted", "by_default"), [NUMBER_OR_WORDS] * len(challenge["cases"]))


@check("numbers_copied", draw=draw_lengths, probe=probe_copies, evidence=copies_form)
def copies_add_up(
    challenge: Challenge, evidence: Evidence, truth: Callable[[Challenge], int]
) -> Verdict:
    """Compare each count with `truth`, the old numbers that a case copies."""
    for case, got in zip(challenge["cases"], evidence["counted"], strict=True):
        if wrong := _wrong_count(case, f", batch={case['batch']}", got, truth(case)):
            return wrong
    for case, got in zip(challenge["cases"], evidence["by_default"], strict=True):
        one_row = {**case, "batch": 1}
        if wrong := _wrong_count(one_row, "", got, truth(one_row)):
            return wrong
    return passed("Each step copies the rows before it, keys and values, in every layer.")


def _wrong_count(case: Challenge, batch: str, got: Any, expected: int) -> Verdict | None:
    c, n = GPTConfig(**case["config"]), case["tokens"]
    call = (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}: "
        f"numbers_copied(config, {n}{batch})"
    )
    if isinstance(got, str):
        return failed(f"{call} gave {got}; wanted is one number. What do you return?")
    if got == expected:
        return None
    return failed(
        f"{call} gave {got:,}, wanted is {expected:,}. {_ask_about_count(c, n, got, expected)}"
    )


def _ask_about_count(config: GPTConfig, n: int, got: float, expected: int) -> str:
    if n == 0:
        return "How many steps are there?"
    if n == 1:
        return "What is there to copy when the first token comes?"
    ratio = got / expected
    if ratio == 1 / 2:
        return "That is half. Are keys copied, or keys and values?"
    if ratio == 2:
        return "That is twice as much. How many rows do all steps copy together, and is a number a byte?"
    if ratio == 1 / config.n_layers:
        return "How many layers hold keys and values?"
    if ratio == config.n_heads / config.n_kv_heads:
        return "Which heads does a cache store?"
    if n == 2:
        return "There is one old row at step 2. How many numbers has it, in all layers?"
    return f"Step 2 copies 1 old row. How many does step {n} copy, and all steps together?"
