"""Check the bytes of a cache with a window: as they are stored, and by formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from course.checks.caches import DTYPES, feed
from course.checks.calls import Case, Words, call, check_calls
from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.recording import Place
from course.checks.weighing import WEIGHT, dtype_name, run_formula, weigh, wrong_weight
from course.model.config import GPTConfig

DEFAULTS = (0, 0, 1, 2)
"""Sinks, full layers, batch and bytes of a number, as windowed_cache_bytes has them by default."""


def draw_sizes(rng: np.random.Generator, tokens: int, n_bytes: int, **sizes: int) -> list[Any]:
    """Draw the arguments of windowed_cache_bytes, but for those that are given."""
    kv_heads, group = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    heads = kv_heads * group
    config = GPTConfig(40, int(rng.integers(2, 5)), 6 * heads, heads, kv_heads, 64)
    window, n_sinks = int(rng.integers(3, 12)), int(rng.integers(1, 5)) if tokens > 8 else 1
    drawn = {"window": window, "n_sinks": n_sinks, "n_full": 0, "batch": int(rng.integers(2, 5))}
    return [config.to_dict(), tokens, *{**drawn, **sizes}.values(), n_bytes]


def draw_storage(seed: int) -> Challenge:
    """Draw caches of each dtype: of a long text, and of one that is shorter than sinks and window."""
    rng = np.random.default_rng(seed)
    cases = [draw_sizes(rng, int(rng.integers(60, 90)), n_bytes) for n_bytes in DTYPES.values()]
    cases.append(draw_sizes(rng, 1, 4, batch=1))
    cases.append(draw_sizes(rng, 5, 2, window=40))
    cases.append(draw_sizes(rng, 30, 4, n_sinks=0))
    return {"cases": cases}


def probe_storage(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Fill a cache of each case to its last token, weigh it, and record whose keys the last read
    returned; of no sinks, the signature's own number is in use."""
    weights, held = [], []
    for config, tokens, window, n_sinks, _, batch, n_bytes in challenge["cases"]:
        c, dtype = GPTConfig(**config), getattr(torch, dtype_name(n_bytes))
        sizes = (batch, tokens, window, *([n_sinks] if n_sinks else []))
        rows, last = np.ones((2, c.n_layers, batch, c.n_kv_heads, 1, c.head_dim)), []
        fill = partial(feed_often, tokens, rows, dtype, last)
        weights.append(weigh(partial(student.WindowedKVCache, c, *sizes, dtype=dtype), fill))
        held.append([layer[0, 0, 0, :, 0] for layer in last])
    return {"cases": weights, "held": held}


def feed_often(
    times: int, rows: np.ndarray, dtype: torch.dtype, last: list[np.ndarray], cache: Any
) -> None:
    """Feed so many tokens, of which each has its number, from 1 on, as keys and values; put what the
    layers returned at the last into the list `last`."""
    for number in range(1, times + 1):
        last[:] = feed(cache, number * rows, dtype)


def storage_form(challenge: Challenge) -> Evidence:
    held = [[np.ndarray] * case[0]["n_layers"] for case in challenge["cases"]]
    return {"cases": [WEIGHT] * len(held), "held": held}


def describe(
    config: dict[str, Any], tokens: int, window: int, *others: int, length: str = "n_tokens"
) -> str:
    """Say the sizes of a case, of which `length` is the name of the number of tokens."""
    n_sinks, n_full, batch, n_bytes = [*others, *DEFAULTS[len(others) :]]
    c, full = GPTConfig(**config), f", {n_full} layers full" if n_full else ""
    return (
        f"L={c.n_layers}{full}, H={c.n_heads}, G={c.n_kv_heads}, D={c.head_dim}, {length} {tokens:,}, "
        f"batch {batch}, window {window:,}, {n_sinks} sinks, {dtype_name(n_bytes)}:"
    )


@check("WindowedKVCache", draw=draw_storage, probe=probe_storage, evidence=storage_form)
def bytes_stay(challenge: Challenge, evidence: Evidence, truth: Callable[..., int]) -> Verdict:
    """Compare what is stored, and what nbytes() says, with the bytes of a case; and see that rows are in
    it. Which they are is asked elsewhere, so half of them will do."""
    results = zip(challenge["cases"], evidence["cases"], evidence["held"], strict=True)
    for case, weight, held in results:
        sizes = describe(*case, length="max_len")
        if wrong := wrong_weight(weight, truth(*case)):
            return failed(f"{sizes} {wrong}")
        _, tokens, window, n_sinks, *_ = case
        needed = {*range(1, n_sinks + 1), *range(tokens - window + 1, tokens + 1)}
        needed &= {*range(1, tokens + 1)}
        back = min(len(needed & {*numbers.ravel().tolist()}) for numbers in held)
        if 2 * back < len(needed):
            return failed(
                f"{sizes} the storage has the right size, but of the {len(needed)} rows that "
                f"the last token needs, its own included, {back} came back. What is written into it?"
            )
    return passed("However long the text, the storage keeps its size.")


def draw_formula(rng: np.random.Generator) -> Iterator[Case]:
    """Draw layers with a window, some or all of them full; texts shorter and longer than it, and none.
    The first three leave what they can to the signature."""
    short, long, some = (draw_sizes(rng, int(rng.integers(300, 9000)), 2) for _ in range(3))
    n_layers, (_, _, window, n_sinks, *_) = some[0]["n_layers"], some
    far = [int(rng.integers(20_000, 90_000)), 4096]
    for arguments in (
        [short[0], 5, 8],
        long[:4],
        long[:3],
        [*some[:4], int(rng.integers(1, n_layers)), some[5], 4],
        [*some[:4], n_layers, *some[5:]],
        [short[0], 7, 5, 4, *short[4:]],
        [long[0], 0, *long[2:]],
        [long[0], *far, *long[3:6], 8],
    ):
        yield call("windowed_cache_bytes", *arguments)
    question = "How many layers can be full?"
    too_many = [some[0], 9, window, n_sinks, n_layers + 1]
    yield call("windowed_cache_bytes", *too_many, refuses="ValueError", question=question)


@check_calls(
    "windowed_cache_bytes",
    draw=draw_formula,
    run=run_formula,
    describe=lambda case: f"{describe(*case['arguments'])} windowed_cache_bytes",
    praise="Full layers grow with the text, the others stop at sinks and window.",
)
def bytes_by_layer(case: Case, result: float, expected: int, place: Place) -> Words:
    arguments = case["arguments"]
    config, tokens, window, n_sinks, n_full, batch, n_bytes = [
        *arguments,
        *DEFAULTS[len(arguments) - 3 :],
    ]
    c, full = GPTConfig(**config), f"How many rows has a full layer after {tokens:,} tokens"
    short = tokens < n_sinks + window and not n_full
    return f"gives {result:,}, expected are {expected:,}.", (
        (
            result * c.n_kv_heads == expected * c.n_heads,
            "Whose heads keep keys and values, and is anything counted twice?",
        ),
        (
            2 * result == expected and (batch, n_bytes) == (1, 2),
            "Are keys and values both counted, and how many bytes has a number?",
        ),
        (
            n_bytes != 2 and result * n_bytes == 2 * expected,
            "How many bytes has a number here, and how many rows has the batch?",
        ),
        (batch > 1 and result * batch == expected, "Is that of every batch row, or of one?"),
        (short and result > expected, f"How many rows can there be after {tokens} tokens?"),
        (n_full, f"{full}, and how many are full?"),
        (True, "How many rows has one layer, and which of the sizes is missing, or one too many?"),
    )
