"""How fast the engine serves one conversation and eight, beside lesson 03's code and `transformers`.

    python benchmarks/engine.py                    one thread
    python benchmarks/engine.py --quick            the story model, shorter answers, two rounds
    python benchmarks/engine.py --device cuda      on a GPU

Eight conversations of the story model begin with the same 100 tokens; the engine begins with empty pages,
and with the prompts already in them. One conversation is written by the story model, and by one with 124M
random weights. Every way gives the same texts with the same weights in float32, which is checked before
anything is timed. The last line is JSON.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import torch
from harness import at_least, bar, generate_theirs
from torch import Tensor

from course.engine import Engine
from course.measure.devices import Device, device_of
from course.measure.machine import one_thread
from course.minigpt.kv_cache import generate_cached
from course.minigpt.serving import continuous_steps
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.published.sizes import Size, build_random
from course.world.evaluation import held_out
from course.world.tokenizer import encode

CONVERSATIONS, SHARED, OWN = 8, 100, 20
"""Conversations, tokens that they have in common, and tokens that each adds."""
BARS = {"one by one": 3.0, "transformers, one by one": 3.0, "transformers, one batch": 1.2}
"""How many times as fast the engine has to serve eight."""
BAR_ALONE = 1.5
"""How many times as fast as `transformers`' generate it has to write one text."""
ON_A_GPU = "on a GPU: "
LARGE = GPTConfig(50_257, 12, 768, 12, 12, 2048, tie_embeddings=True)
"""As many weights as GPT-2: 124M."""

Texts = list[list[int]]


def draw_prompts() -> list[list[int]]:
    """Beginnings of stories, (8, 120)."""
    stories = [encode(story.text)[0].tolist() for story in held_out(CONVERSATIONS + 1)]
    return [stories[-1][:SHARED] + story[:OWN] for story in stories[:-1]]


def ways_of(
    model: MiniGPT, theirs: Any, n_new: int
) -> dict[str, Callable[[list[list[int]]], Texts]]:
    """The ways to answer prompts; each gives the new tokens."""

    def rows(generate: Callable[[Tensor], Tensor], prompts: list[list[int]]) -> Texts:
        fed = torch.tensor(prompts, device=model.embed.weight.device)
        return generate(fed)[:, len(prompts[0]) :].tolist()

    def one_by_one(generate: Callable[[Tensor], Tensor], prompts: list[list[int]]) -> Texts:
        return [rows(generate, [prompt])[0] for prompt in prompts]

    warm = Engine(model)  # has every prompt in its pages from the first round on
    single = Engine(model)
    ours = partial(generate_cached, copy.deepcopy(model), n_new=n_new)  # an engine changes layouts
    peer = partial(generate_theirs, theirs, "dynamic", n_new=n_new)
    return {
        "one by one": partial(one_by_one, ours),
        "engine, one by one": lambda prompts: [single.serve([one], n_new)[0] for one in prompts],
        "engine": lambda prompts: Engine(model).serve(prompts, n_new),
        "engine, prompts known": lambda prompts: warm.serve(prompts, n_new),
        "one batch, equal lengths": partial(rows, ours),
        "transformers, one by one": partial(one_by_one, peer),
        "transformers, one batch": partial(rows, peer),
    }


def bars_of(eight: dict[str, dict], alone: dict[str, dict], on: str = "") -> list[dict]:
    """Hold the engine against other ways to serve eight, and one text against `transformers`.

    Args:
        on: what the names of the bars begin with, such as "on a GPU: ".
    """
    engine = eight["engine"]["seconds"]
    bars = [
        bar(f"{on}engine over {name}", eight[name]["seconds"] / engine, minimum)
        for name, minimum in BARS.items()
    ]
    for name, table in alone.items():
        value = table["transformers"]["seconds"] / table["engine"]["seconds"]
        bars.append(bar(f"{on}engine over transformers, one text of {name}", value, BAR_ALONE))
    return bars


def measure_eight(model: MiniGPT, n_new: int, rounds: int) -> dict[str, dict]:
    """Measure eight conversations of the story model."""
    device = model.embed.weight.device
    theirs = harness.as_transformers(Size("story", model.config, torch.float32), model, device)
    prompts, ways = draw_prompts(), ways_of(model, theirs, n_new)
    harness.check_equal(ways, prompts, device=device_of(device))
    passes = {rows: continuous_steps([n_new] * CONVERSATIONS, rows) for rows in (1, 8)}
    print(f"\nThe ceiling: {passes[1]} passes one by one, {passes[8]} together")
    title = f"{CONVERSATIONS} conversations, {SHARED} + {OWN} + {n_new} tokens"
    return measured(title, ways, prompts, rounds, CONVERSATIONS * n_new, device_of(device))


def measure_alone(
    name: str, model: MiniGPT, prompt: list[int], n_new: int, rounds: int
) -> dict[str, dict]:
    """Measure one text."""
    device = model.embed.weight.device
    theirs = harness.as_transformers(Size(name, model.config, torch.float32), model, device)
    ours, engine = copy.deepcopy(model), Engine(model)

    def new_tokens(generate: Callable, model: Any, *how: str) -> Callable[[list[int]], list[int]]:
        return lambda prompt: generate(model, *how, torch.tensor([prompt], device=device), n_new)[
            0, len(prompt) :
        ].tolist()

    ways = {
        "lesson 03": new_tokens(generate_cached, ours),
        "engine": lambda prompt: engine.serve([prompt], n_new)[0],
        "transformers": new_tokens(generate_theirs, theirs, "dynamic"),
    }
    harness.check_equal(ways, prompt, device=device_of(device))
    title = f"{name}, one text of {len(prompt)} + {n_new} tokens"
    return measured(title, ways, prompt, rounds, n_new, device_of(device))


def measured(
    title: str, ways: dict, asked: Any, rounds: int, n_tokens: int, device: Device
) -> dict[str, dict]:
    """Let ways take turns, and print tokens a second of each."""
    calls = {name: partial(way, asked) for name, way in ways.items()}
    samples = harness.measure(calls, device, rounds)
    table = {name: harness.row_of(each) for name, each in samples.items()}
    harness.print_rows(title, table, "  tokens/s", lambda row: f"{n_tokens / row['seconds']:9,.0f}")
    return table


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__, 7, "answers of 20 tokens, two rounds")
    parser.add_argument("--device", type=harness.device_named, default="cpu", help=harness.DEVICES)
    parser.add_argument("--new", type=at_least(1), default=100, help="tokens of each answer (100)")
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        parsed.new, parsed.rounds = 20, 2
    return parsed


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    parsed = parse(arguments)
    sizes = {"conversations": CONVERSATIONS, "n_new": parsed.new}
    result = harness.begin("engine", arguments, parsed.device, **sizes)
    story = MiniGPT.from_weights("story").to(parsed.device)
    with one_thread():
        eight = measure_eight(copy.deepcopy(story), parsed.new, parsed.rounds)
        prompt = draw_prompts()[0]
        alone = {"story": measure_alone("story", story, prompt, parsed.new, parsed.rounds)}
        if not parsed.quick:
            large = build_random(Size("124M", LARGE, torch.float32), parsed.device)
            alone["124M"] = measure_alone("124M", large, prompt, parsed.new // 2, 3)
    on = "" if parsed.device.type == "cpu" else ON_A_GPU
    result |= {"table": eight, "alone": alone, "bars": bars_of(eight, alone, on)}
    harness.tell(result, parsed.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
