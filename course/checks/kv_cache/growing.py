"""Check the cache that grows by `torch.cat`: what it returns, and the count of what it copies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, plain
from course.checks.drawing import draw_split
from course.checks.kv_cache.container import feed
from course.checks.kv_cache.holding import wrong_block
from course.model.config import GPTConfig


def draw_blocks(seed: int) -> Challenge:
    """Draw keys and values of 9 tokens, (2, L, B, G, 9, D), and a split of them."""
    rng = np.random.default_rng(seed)
    config = GPTConfig(30, 3, 24, 4, 2, 40)
    return {
        "config": config.to_dict(),
        "blocks": rng.normal(size=(2, 3, 3, 2, 9, 6)).astype(np.float32),
        "split": draw_split(rng, 9),
        "dtypes": ["float32", ["float16", "float64"][seed % 2]],
    }


def probe_growing(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Append block after block, of each dtype, and after each its negative to another cache."""
    return {"series": [_feed_in_turns(student, challenge, name) for name in challenge["dtypes"]]}


def _feed_in_turns(student: SimpleNamespace, challenge: Challenge, name: str) -> Evidence:
    dtype, config = getattr(torch, name), GPTConfig(**challenge["config"])
    caches = [student.GrowingKVCache(config, batch=3, dtype=dtype) for _ in range(2)]
    blocks, done = [], 0
    for n in challenge["split"]:
        block = challenge["blocks"][..., done : done + n, :]
        blocks.append({"returned": feed(caches[0], block, dtype), "length": len(caches[0])})
        feed(caches[1], -block, dtype)
        done += n
    return {"blocks": blocks}


def growing_form(challenge: Challenge) -> Evidence:
    n_layers = challenge["blocks"].shape[1]
    block = {"returned": [np.ndarray] * n_layers, "length": int}
    return {"series": [{"blocks": [block] * len(challenge["split"])}] * len(challenge["dtypes"])}


@check("GrowingKVCache", draw=draw_blocks, probe=probe_growing, evidence=growing_form)
def growing_cache_returns_everything(challenge: Challenge, evidence: Evidence) -> Verdict:
    split = challenge["split"]
    for dtype, series in zip(challenge["dtypes"], evidence["series"], strict=True):
        stored = challenge["blocks"].astype(dtype)
        for call, block in enumerate(series["blocks"]):
            done = sum(split[: call + 1])
            for layer, got in enumerate(block["returned"]):
                wanted = stored[:, layer, :, :, :done]
                if wrong := wrong_block(got, wanted, split[: call + 1], layer):
                    return wrong
            if block["length"] != done:
                return failed(
                    f"After appending {split[: call + 1]} tokens to each of 3 layers and advancing, "
                    f"len(cache) is {block['length']}, not {done}. Which of the two methods counts?"
                )
    return passed(f"Blocks of {split} tokens come back whole and in order, in every layer.")


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


def _wrong_count(case: Challenge, batch: str, got: Any, wanted: int) -> Verdict | None:
    c, n = GPTConfig(**case["config"]), case["tokens"]
    call = (
        f"L={c.n_layers}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}: "
        f"numbers_copied(config, {n}{batch})"
    )
    if isinstance(got, str):
        return failed(f"{call} gave {got}; wanted is one number. What do you return?")
    if got == wanted:
        return None
    return failed(
        f"{call} gave {got:,}, wanted is {wanted:,}. {_ask_about_count(c, n, got, wanted)}"
    )


def _ask_about_count(config: GPTConfig, n: int, got: float, wanted: int) -> str:
    if n == 0:
        return "How many steps are there?"
    if n == 1:
        return "What is there to copy when the first token comes?"
    ratio = got / wanted
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
