"""How fast whole texts are decoded: without a cache, with the lessons' caches, beside `transformers`.

    python benchmarks/decode.py                    d = 64, 128, 384 and 124M parameters, one thread
    python benchmarks/decode.py --sizes d64 d128   some of them
    python benchmarks/decode.py --quick            the smallest, with few rounds
    python benchmarks/decode.py --device cuda      on a GPU, where a near tie may be decided otherwise

Every way writes the same text with the same weights in float32, which is checked before anything is
timed: 16 tokens of prompt and 128 new ones (32 of the largest), of one row and of 16. For d = 128 texts
grow to 50, 256 and 1,024 tokens, where the naive way falls behind. What the machine allows is printed
first; all ways take turns; the last line is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import torch
from harness import bar, generate_theirs
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
"""Tokens of a text, prompt included, and the bar of cached over naive at d = 128."""
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
BARS = {
    "preallocated": ("lesson 03's code", {"d64": 1.0, "d128": 1.0, "d384": 1.0, "124M": 0.95}),
    "fast decode": ("fast decode", {"d64": 2.9, "d128": 2.6, "d384": 1.6, "124M": 1.4}),
}
"""How many times as fast as `transformers`' generate each has to be. Plain code loses to nobody; at 124M
both wait for the same matrices, and two runs of one way differ by up to 5 % (docs/LOG.md)."""

Way = Callable[[Tensor, int], Tensor]


def ways_of(size: Size, model: MiniGPT, theirs: Any, batch: int, length: int) -> dict[str, Way]:
    """The ways to write a text of so many tokens: prompt (B, P) and n_new give (B, P + n_new)."""

    def cached(new_cache: Callable, *room: int) -> Way:
        return lambda prompt, n_new: generate_cached(
            model, prompt, n_new, new_cache(model.config, batch, *room, device=prompt.device)
        )

    ways = {
        "naive": torch.inference_mode()(partial(generate_naive, model)),  # as its rivals do
        "cat": cached(GrowingKVCache),
        "preallocated": partial(generate_cached, model),
        "int8": cached(QuantizedKVCache, length),
        "fast decode": FastDecoder(model, batch, length).generate,
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


def table_of(
    ways: dict[str, Way], prompt: Tensor, n_new: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Measure each way, after all but int8, whose cache is rounded, wrote the same text. Short rounds
    are disturbed most easily, so there are up to three times as many of them."""
    begun = time.perf_counter()
    device = device_of(prompt.device)
    harness.check_equal(ways, prompt, n_new, device=device, but=("int8",))
    once = time.perf_counter() - begun
    rounds = max(rounds, min(3 * rounds, int(SHORT * rounds / once)))
    calls = {name: partial(way, prompt, n_new) for name, way in ways.items()}
    samples = harness.measure(calls, device, rounds, warm=True)
    return {name: harness.row_of(each) for name, each in samples.items()}


def at_best(size: Size, batch: int, n_new: int, machine: Machine) -> float:
    """Compute the seconds that the machine's two limits allow for the text, with a cache."""
    cost = phase_cost(size.config, PROMPT, 0, batch, 4)
    steps = [phase_cost(size.config, 1, PROMPT + n, batch, 4) for n in range(n_new - 1)]
    return sum(
        max(one.flops / machine.flops_per_second, one.bytes / machine.bytes_per_second)
        for one in (cost, *steps)
    )


def print_table(title: str, table: dict[str, dict[str, float]], n_new: int) -> None:
    ours = table["preallocated"]["seconds"]
    harness.print_rows(
        title,
        table,
        "       a token   beside preallocated",
        lambda row: f"{row['seconds'] / n_new * 1e3:8.3f} ms   {row['seconds'] / ours:8.2f}",
    )


def bars_of(texts: dict[str, dict], lengths: dict[int, dict]) -> list[dict]:
    """Hold lesson 03's code and fast decode against the faster of `transformers`' two caches, for texts
    of one row; and a cache against none, for texts that grow."""
    bars = []
    for name, tables in texts.items():
        table = next(iter(tables.values()))  # of one row
        peer = min(table[way]["seconds"] for way in PEERS)
        for way, (what, minimums) in BARS.items():
            what = f"{name}: {what} over transformers' generate"
            bars.append(bar(what, peer / table[way]["seconds"], minimums[name]))
    for length, table in lengths.items():
        value = table["naive"]["seconds"] / table["preallocated"]["seconds"]
        bars.append(bar(f"d128: cached over naive at {length} tokens", value, LENGTHS[int(length)]))
    return bars


def measure_texts(
    size: Size, rounds: int, machine: Machine, device: torch.device
) -> dict[int, dict]:
    """Measure the texts of one model: a table for each number of rows, one row first."""
    model = build_random(size, device)
    theirs = harness.as_transformers(size, model, device)
    batches, n_new = (BATCHES, NEW) if size.parameters < SLOW else (BATCHES[:1], NEW // 4)
    tables = {}
    for batch in batches:
        seconds = at_best(size, batch, n_new, machine)
        print(f"\n{size.name}, {batch} row(s): at best {seconds * 1e3:.1f} ms")
        prompt = torch.randint(size.config.vocab_size, (batch, PROMPT), device=device)
        ways = ways_of(size, model, theirs, batch, PROMPT + n_new)
        tables[batch] = table_of(ways, prompt, n_new, rounds)
        print_table(f"{size.name}, {PROMPT} + {n_new} tokens, {batch} row(s)", tables[batch], n_new)
    return tables


def measure_lengths(lengths: list[int], rounds: int, device: torch.device) -> dict[int, dict]:
    """Measure texts that grow at d = 128, with a cache and without: a table for each length."""
    size, tables = SIZES["d128"], {}
    model = build_random(size, device)
    prompt = torch.randint(size.config.vocab_size, (1, PROMPT), device=device)
    for length in lengths:
        every = ways_of(size, model, None, 1, length)
        ways = {name: every[name] for name in ("naive", "cat", "preallocated", "fast decode")}
        tables[length] = table_of(ways, prompt, length - PROMPT, rounds)
        print_table(f"d128, until the text has {length} tokens", tables[length], length - PROMPT)
    return tables


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__, 4, "d = 64, short texts, two rounds")
    parser.epilog = "Short rounds are repeated up to 3 times as often, growing texts half as often."
    names = {"choices": SIZES, "default": list(SIZES), "metavar": "SIZE"}
    parser.add_argument("--sizes", nargs="+", help=f"of {', '.join(SIZES)}; left out, all", **names)
    parser.add_argument("--device", type=harness.device_named, default="cpu", help=harness.DEVICES)
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        parsed.sizes, parsed.rounds = ["d64"], 2
    parsed.lengths = sorted(LENGTHS)[: 2 if parsed.quick else None]
    return parsed


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    parsed = parse(arguments)
    device = parsed.device
    result = harness.begin("decode", arguments, device)
    torch.manual_seed(0)
    with one_thread():
        machine = measure_machine(device, torch.float32)
        harness.print_ceiling(machine)
        texts = {
            name: measure_texts(SIZES[name], parsed.rounds, machine, device)
            for name in parsed.sizes
        }
        lengths = measure_lengths(parsed.lengths, max(2, parsed.rounds // 2), device)
    bars = bars_of(texts, lengths) if device.type == "cpu" else []  # which are a CPU's
    result |= {"texts": texts, "lengths": lengths, "bars": bars}
    result["machine"] = harness.limits_of(machine)
    harness.tell(result, parsed.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
