"""How fast the engine serves conversations, beside one by one and beside `transformers`.

    python benchmarks/engine.py                    the story model, 8 conversations, one thread
    python benchmarks/engine.py --quick            shorter answers, two rounds

Eight conversations begin with the same 100 tokens. Every way gives the same texts with the same weights
in float32, which is checked before anything is timed. Once the prefix is known to the engine, and once it
is not. What is alone is written plainly and with guesses. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
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

from course.engine import Engine
from course.measure.devices import device_of
from course.measure.machine import one_thread
from course.minigpt.kv_cache import generate_cached
from course.minigpt.serving import continuous_steps
from course.model import MiniGPT
from course.published.sizes import Size
from course.world.evaluation import held_out
from course.world.tokenizer import encode

CONVERSATIONS, SHARED, OWN = 8, 100, 20
"""Conversations, tokens that they have in common, and tokens that each adds."""
BARS = {"one by one": 3.0, "transformers, one by one": 3.0}
"""How many times as fast the engine has to serve."""
TOGETHER, ALONE = "engine", "engine, one alone with guesses"

Texts = list[list[int]]


def draw_prompts() -> list[list[int]]:
    """Beginnings of stories, (8, 120)."""
    stories = [encode(story.text)[0].tolist() for story in held_out(CONVERSATIONS + 1)]
    return [stories[-1][:SHARED] + own[:OWN] for own in stories[:-1]]


def ways_of(
    model: MiniGPT, theirs: Any, n_new: int
) -> dict[str, Callable[[list[list[int]]], Texts]]:
    """The ways to answer prompts; each gives the new tokens."""

    def rows(generate: Callable[[Tensor], Tensor], prompts: list[list[int]]) -> Texts:
        return generate(torch.tensor(prompts))[:, len(prompts[0]) :].tolist()

    def one_by_one(generate: Callable[[Tensor], Tensor], prompts: list[list[int]]) -> Texts:
        return [rows(generate, [prompt])[0] for prompt in prompts]

    def new_engine(prompts: list[list[int]]) -> Texts:
        return Engine(model).serve(prompts, n_new)

    def with_guesses(prompts: list[list[int]]) -> Texts:
        return [Engine(model).write(prompt, n_new) for prompt in prompts]

    warm = Engine(model)  # every prompt is known to it from the first turn on
    ours = partial(generate_cached, model, n_new=n_new)
    peer = partial(generate_theirs, theirs, "dynamic", n_new=n_new)
    return {
        "one by one": partial(one_by_one, ours),
        ALONE: with_guesses,
        TOGETHER: new_engine,
        "engine, prompts known": lambda prompts: warm.serve(prompts, n_new),
        "one batch, equal lengths": partial(rows, ours),
        "transformers, one by one": partial(one_by_one, peer),
        "transformers, one batch": partial(rows, peer),
    }


def check_equal(ways: dict[str, Callable], prompts: list[list[int]]) -> None:
    """Check that all ways give the same texts.

    Raises:
        AssertionError: one gives others.
    """
    texts = ways["one by one"](prompts)
    for name, way in ways.items():
        if way(prompts) != texts:
            raise AssertionError(f"{name} gives other texts: not worth a clock")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--new", type=int, default=100, help="tokens of each answer (100)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way is measured")
    parser.add_argument("--quick", action="store_true", help="answers of 20 tokens, two rounds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there as well")
    asked = parser.parse_args(arguments)
    for name in ("new", "rounds"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}")
    if asked.quick:
        asked.new, asked.rounds = 20, 2
    return asked


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    asked = parse(arguments)
    cpu = torch.device("cpu")
    result = heading("engine", arguments, cpu)
    print(json.dumps(result, indent=1))
    model = MiniGPT.from_weights("story")
    theirs = as_transformers(Size("story", model.config, torch.float32), model, cpu)
    prompts, ways = draw_prompts(), ways_of(model, theirs, asked.new)
    with one_thread():
        check_equal(ways, prompts)
        passes = {rows: continuous_steps([asked.new] * CONVERSATIONS, rows) for rows in (1, 8)}
        print(f"\nThe ceiling: {passes[1]} passes one by one, {passes[8]} together")
        calls = {name: partial(way, prompts) for name, way in ways.items()}
        samples = measure(calls, device_of("cpu"), asked.rounds)
    table = {name: row_of(found) for name, found in samples.items()}
    n_tokens = CONVERSATIONS * asked.new
    print(f"\n{CONVERSATIONS} conversations, {SHARED} + {OWN} + {asked.new} tokens")
    print(f"  {'':32} {'shortest':>11} {'median':>11} {'tokens/s':>10}")
    for name, row in table.items():
        print(
            f"  {name:32} {row['seconds'] * 1e3:8.1f} ms {row['median_seconds'] * 1e3:8.1f} ms "
            f"{n_tokens / row['seconds']:10,.0f}"
        )
    result["bars"] = [
        bar(f"engine over {name}", table[name]["seconds"] / table[TOGETHER]["seconds"], least)
        for name, least in BARS.items()
    ]
    print()
    print_bars(result["bars"])
    tell(result | {"conversations": CONVERSATIONS, "n_new": asked.new, "table": table}, asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
