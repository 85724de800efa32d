"""How fast whole texts are decoded: without a cache, with the lessons' caches, beside `transformers`.

    python benchmarks/decode.py                    d = 64, 128, 384 and 124M parameters, one thread
    python benchmarks/decode.py --sizes d64 d128   some of them
    python benchmarks/decode.py --quick            the smallest, with few rounds

Every way writes the same text with the same weights in float32, which is checked before anything is
timed: 16 tokens of prompt and 128 new ones (32 of the largest), of one row and of 16. For d = 128 texts
grow to 50, 256 and 1,024 tokens, where the naive way falls behind. What the machine allows is printed
first; all ways take turns; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import (
    as_transformers,
    bar,
    generate_theirs,
    heading,
    measure,
    print_bars,
    row_of,
    tell,
)
from torch import Tensor

from course.fast.decode import FastDecoder
from course.measure.devices import device_of
from course.measure.limits import Machine, measure_machine
from course.measure.machine import one_thread
from course.minigpt.kv_cache import GrowingKVCache, generate_cached
from course.minigpt.naive_decode import generate_naive
from course.minigpt.quantized_cache import QuantizedKVCache
from course.minigpt.roofline import phase_cost
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.published.sizes import Size, build_random

PROMPT, NEW = 16, 128
BATCHES = (1, 16)
LENGTHS = {50: 1.7, 256: 5.0, 1024: 20.0}
"""Tokens of a text in the end, and how many times as fast a cache has to write it, at d = 128."""
PEERS = ("transformers, dynamic", "transformers, static")
SHORT = 5.0
"""A round of all ways that takes fewer seconds is repeated more often, up to three times."""
SLOW = 2**24
"""Parameters from which on texts are short, and the naive way and 16 rows are left out: they take
minutes."""


def _size(name: str, vocabulary: int, layers: int, width: int, heads: int) -> Size:
    ff = -(-8 * width // 3 // 64) * 64  # as Llama chooses it
    tied = vocabulary > 10_000
    config = GPTConfig(vocabulary, layers, width, heads, heads, ff, tie_embeddings=tied)
    return Size(name, config, torch.float32)


SIZES = {
    size.name: size
    for size in (
        _size("d64", 512, 4, 64, 4),
        _size("d128", 512, 4, 128, 4),
        _size("d384", 512, 6, 384, 6),
        _size("124M", 50_257, 12, 768, 12),
    )
}
BARS = {"d64": 2.3, "d128": 1.8, "d384": 1.2, "124M": 0.9}
"""How many times as fast as `transformers`' generate a preallocated cache has to be."""

Way = Callable[[Tensor, int], Tensor]


def ways_of(size: Size, model: MiniGPT, theirs: Any, batch: int, length: int) -> dict[str, Way]:
    """The ways to write a text of so many tokens: prompt (B, P) and n_new give (B, P + n_new)."""
    decoder = FastDecoder(model, batch, length)

    def cat(prompt: Tensor, n_new: int) -> Tensor:
        return generate_cached(model, prompt, n_new, GrowingKVCache(model.config, batch))

    def int8(prompt: Tensor, n_new: int) -> Tensor:
        return generate_cached(model, prompt, n_new, QuantizedKVCache(model.config, batch, length))

    ways = {
        "naive": torch.inference_mode()(partial(generate_naive, model)),  # as its rivals do
        "cat": cat,
        "preallocated": partial(generate_cached, model),
        "int8": int8,
        "fast decode": decoder.generate,
        "transformers, dynamic": partial(generate_theirs, theirs, "dynamic"),
        "transformers, static": partial(generate_theirs, theirs, "static"),
        "transformers, own loop": partial(loop_theirs, theirs),
    }
    if size.parameters * batch > SLOW:
        del ways["naive"]
    return ways


@torch.no_grad()
def loop_theirs(model: Any, prompt: Tensor, n_new: int) -> Tensor:
    """Their forward pass and cache alone, without what `generate` adds to each step."""
    text, feed, cache = [prompt], prompt, None
    for _ in range(n_new):
        out = model(feed, past_key_values=cache, use_cache=True)
        cache, feed = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
        text.append(feed)
    return torch.cat(text, dim=1)


def check_equal(ways: dict[str, Way], prompt: Tensor, n_new: int) -> None:
    """Check that all ways write one text. Only int8 may write another: its cache is rounded.

    Raises:
        AssertionError: another way differs.
    """
    text = ways["preallocated"](prompt, n_new)
    for name, way in ways.items():
        if name != "int8" and not torch.equal(way(prompt, n_new), text):
            raise AssertionError(f"{name} writes another text: not worth a clock")


def table_of(
    ways: dict[str, Way], prompt: Tensor, n_new: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Seconds of each way, after all wrote the same text. Short rounds are disturbed most easily: there
    are up to three times as many where they are."""
    begun = time.perf_counter()
    check_equal(ways, prompt, n_new)
    once = time.perf_counter() - begun
    rounds = max(rounds, min(3 * rounds, int(SHORT * rounds / once)))
    calls = {name: partial(way, prompt, n_new) for name, way in ways.items()}
    samples = measure(calls, device_of("cpu"), rounds, warm=True)  # by what was just checked
    return {name: row_of(found) for name, found in samples.items()}


def at_best(size: Size, batch: int, n_new: int, machine: Machine) -> float:
    """Seconds that the machine needs at least for the text, by its two limits, a cache provided."""
    cost = phase_cost(size.config, PROMPT, 0, batch, 4)
    steps = [phase_cost(size.config, 1, PROMPT + n, batch, 4) for n in range(n_new - 1)]
    return sum(
        max(one.flops / machine.flops_per_second, one.bytes / machine.bytes_per_second)
        for one in (cost, *steps)
    )


def ratio(table: dict[str, dict[str, float]], over: tuple[str, ...], under: str) -> float:
    """How many times as long the fastest of some ways takes."""
    return min(table[name]["seconds"] for name in over) / table[under]["seconds"]


def print_table(title: str, table: dict[str, dict[str, float]], n_new: int) -> None:
    ours = table["preallocated"]["seconds"]
    print(
        f"\n{title}\n  {'':24} {'shortest':>11} {'median':>11} {'a token':>11}   beside preallocated"
    )
    for name, row in table.items():
        print(
            f"  {name:24} {row['seconds'] * 1e3:8.1f} ms {row['median_seconds'] * 1e3:8.1f} ms "
            f"{row['seconds'] / n_new * 1e3:8.3f} ms   {row['seconds'] / ours:8.2f}"
        )


def measure_texts(size: Size, rounds: int, machine: Machine) -> tuple[dict, list[dict]]:
    """The tables of one model by batch, and what is held against a bar."""
    model = build_random(size, torch.device("cpu"))
    theirs = as_transformers(size, model, torch.device("cpu"))
    batches, n_new = (BATCHES, NEW) if size.parameters < SLOW else (BATCHES[:1], NEW // 4)
    tables, bars = {}, []
    for batch in batches:
        least = at_best(size, batch, n_new, machine)
        print(f"\n{size.name}, {batch} row(s): at best {least * 1e3:.1f} ms")
        prompt = torch.randint(size.config.vocab_size, (batch, PROMPT))
        ways = ways_of(size, model, theirs, batch, PROMPT + n_new)
        tables[batch] = table = table_of(ways, prompt, n_new, rounds)
        print_table(f"{size.name}, {PROMPT} + {n_new} tokens, {batch} row(s)", table, n_new)
        if batch == 1:
            what = f"{size.name}: lesson 03's code over transformers' generate"
            bars.append(bar(what, ratio(table, PEERS, "preallocated"), BARS[size.name]))
            what = f"{size.name}: fast decode over transformers' generate"
            bars.append(bar(what, ratio(table, PEERS, "fast decode"), BARS[size.name]))
    return tables, bars


def measure_lengths(size: Size, lengths: list[int], rounds: int) -> tuple[dict, list[dict]]:
    """Texts that grow: with a cache and without."""
    model = build_random(size, torch.device("cpu"))
    tables, bars = {}, []
    prompt = torch.randint(size.config.vocab_size, (1, PROMPT))
    for length in lengths:
        every = ways_of(size, model, None, 1, length)
        ways = {name: every[name] for name in ("naive", "cat", "preallocated", "fast decode")}
        n_new = length - PROMPT
        tables[length] = table = table_of(ways, prompt, n_new, rounds)
        print_table(f"{size.name}, until {length} tokens stand there", table, n_new)
        what = f"{size.name}: cached over naive at {length} tokens"
        bars.append(bar(what, ratio(table, ("naive",), "preallocated"), LENGTHS[length]))
    return tables, bars


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), metavar="SIZE")
    parser.add_argument(
        "--rounds",
        type=int,
        default=4,
        help="how often each way is measured, or up to three times that; half as often where texts grow",
    )
    parser.add_argument("--quick", action="store_true", help="d = 64, short texts, two rounds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there as well")
    asked = parser.parse_args(arguments)
    if asked.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {asked.rounds}")
    if asked.quick:
        asked.sizes, asked.rounds = ["d64"], 2
    asked.lengths = sorted(LENGTHS)[:2] if asked.quick else sorted(LENGTHS)
    return asked


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    asked = parse(arguments)
    device = torch.device("cpu")
    result = heading("decode", arguments, device) | {"texts": {}, "lengths": {}, "bars": []}
    print(json.dumps({key: value for key, value in result.items() if value}, indent=1))
    torch.manual_seed(0)
    with one_thread():
        machine = measure_machine(device, torch.float32)
        print(
            f"\nThe ceiling: {machine.flops_per_second / 1e9:.4g} GFLOP/s, "
            f"{machine.bytes_per_second / 1e9:.4g} GB/s"
        )
        for name in asked.sizes:
            result["texts"][name], bars = measure_texts(SIZES[name], asked.rounds, machine)
            result["bars"] += bars
        result["lengths"], bars = measure_lengths(
            SIZES["d128"], asked.lengths, max(2, asked.rounds // 2)
        )
        result["bars"] += bars
    print()
    print_bars(result["bars"])
    result["machine"] = asdict(machine) | {"balance": machine.balance}
    tell(result, asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
