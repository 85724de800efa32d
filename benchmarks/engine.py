"""How fast the engine serves conversations, beside one by one and beside `transformers`.

    python benchmarks/engine.py                    the story model, 8 conversations, one thread
    python benchmarks/engine.py --quick            shorter answers, two rounds

Eight conversations begin with the same 100 tokens. Every way gives the same texts with the same weights
in float32, which is checked before anything is timed. The engine begins with empty pages, and with the
prompts already in them; texts one by one are written plainly and with guesses. The last line is JSON.
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
        return generate(torch.tensor(prompts))[:, len(prompts[0]) :].tolist()

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


def bars_of(table: dict[str, dict[str, float]]) -> list[dict]:
    """Hold the engine against ways to serve one by one."""
    engine = table["engine"]["seconds"]
    return [
        bar(f"engine over {name}", table[name]["seconds"] / engine, minimum)
        for name, minimum in BARS.items()
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__, 7, "answers of 20 tokens, two rounds")
    parser.add_argument("--new", type=at_least(1), default=100, help="tokens of each answer (100)")
    parsed = parser.parse_args(arguments)
    if parsed.quick:
        parsed.new, parsed.rounds = 20, 2
    return parsed


@torch.no_grad()
def main(arguments: list[str] | None = None) -> int:
    parsed, cpu = parse(arguments), torch.device("cpu")
    result = harness.begin("engine", arguments, cpu, conversations=CONVERSATIONS, n_new=parsed.new)
    model = MiniGPT.from_weights("story")
    theirs = harness.as_transformers(Size("story", model.config, torch.float32), model, cpu)
    prompts, ways = draw_prompts(), ways_of(model, theirs, parsed.new)
    with one_thread():
        harness.check_equal(ways, prompts)
        passes = {rows: continuous_steps([parsed.new] * CONVERSATIONS, rows) for rows in (1, 8)}
        print(f"\nThe ceiling: {passes[1]} passes one by one, {passes[8]} together")
        calls = {name: partial(way, prompts) for name, way in ways.items()}
        samples = harness.measure(calls, device_of("cpu"), parsed.rounds)
    table = {name: harness.row_of(each) for name, each in samples.items()}
    title = f"{CONVERSATIONS} conversations, {SHARED} + {OWN} + {parsed.new} tokens"
    rate = CONVERSATIONS * parsed.new
    harness.print_rows(title, table, "  tokens/s", lambda row: f"{rate / row['seconds']:9,.0f}")
    harness.tell(result | {"table": table, "bars": bars_of(table)}, parsed.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
