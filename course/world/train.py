"""Train the models that the course ships.

    python -m course.world.train                  all of them
    python -m course.world.train --only mini      one of them
    python -m course.world.train --out DIR        somewhere else than course/weights

All of it takes less than 20 minutes on two idle cores. Everything is drawn from fixed seeds: on one
machine, with one version of torch, training again gives the same files bit for bit (tried with
torch 2.13 on a 2-core x86-64 CPU); elsewhere the last digits may differ. An interrupted run goes on
where it stopped when the same command is given again: its checkpoints are in runs/.

The recipe has two parts. Plain training on stories never learns to recall: to say "Stone" after
"Mia", a model must first look for an earlier "Mia" and then for what followed it, and each half is
useless without the other. So every model first copies short random sequences, where that one skill
is all there is to learn, and reads stories only then. (Such heads are known as induction heads:
Olsson et al. 2022.)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from course import weights
from course.minigpt.gqa import mean_pool_kv_heads
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model import MiniGPT
from course.model.config import GPTConfig
from course.model.layers import Attention
from course.world.evaluation import TRAINING_SEEDS, evaluate, held_out
from course.world.stories import tell
from course.world.tokenizer import END, FINGERPRINT, VOCAB_SIZE, WORDS, encode

THREADS = 2
"""Part of the recipe: sums in another order end in other last digits."""
WARMUP, CLIP = 50, 1.0
"""Steps in which the learning rate rises, and the largest norm of a step's gradient."""
IGNORED = -100
"""A target that does not count."""
HELD_OUT = 200
"""Stories on which metrics.json is measured."""
RUNS = Path("runs")
"""Folder of the checkpoints."""


@dataclass(frozen=True)
class Phase:
    """Training steps on one kind of text ("repeats" or "stories"): `batch` rows of `length` tokens."""

    text: str
    steps: int
    batch: int
    length: int


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        config: its sizes.
        phases: of its training.
        rate: the highest learning rate.
        parent: of a GQA sibling, the model whose key and value heads it pools.
    """

    config: GPTConfig
    phases: tuple[Phase, ...]
    rate: float
    parent: str | None = None

    @property
    def steps(self) -> int:
        """Count the steps of all phases."""
        return sum(phase.steps for phase in self.phases)


def _sizes(n_layers: int, d_model: int, n_heads: int, n_kv_heads: int) -> GPTConfig:
    """Make the config of a story model."""
    return GPTConfig(VOCAB_SIZE, n_layers, d_model, n_heads, n_kv_heads, d_ff=2 * d_model)


_UPTRAINING = (Phase("repeats", 150, 48, 64), Phase("stories", 350, 16, 256))
"""Pooling to one or two heads breaks the heads that copy, so siblings start with repeats as well."""
# The last phase of each reads several stories in a row, so that a text may grow to a thousand tokens.
RECIPES = {
    "mini": Recipe(
        _sizes(2, 64, 4, 4),
        (
            Phase("repeats", 600, 48, 64),
            Phase("stories", 2600, 16, 256),
            Phase("stories", 200, 4, 1024),
        ),
        rate=3e-3,
    ),
    "story": Recipe(
        _sizes(4, 128, 8, 8),
        (
            Phase("repeats", 600, 48, 64),
            Phase("stories", 1400, 16, 256),
            Phase("stories", 150, 4, 1024),
        ),
        rate=2e-3,
    ),
    "story-g4": Recipe(_sizes(4, 128, 8, 4), _UPTRAINING, rate=2e-3, parent="story"),
    "story-g2": Recipe(_sizes(4, 128, 8, 2), _UPTRAINING, rate=2e-3, parent="story"),
    "story-g1": Recipe(_sizes(4, 128, 8, 1), _UPTRAINING, rate=2e-3, parent="story"),
}


def train(name: str, recipe: Recipe, out: Path, runs: Path, save_every: int = 50) -> None:
    """Train one model, from its checkpoint if there is one, and write `out/name.safetensors`.

    Args:
        name: of the weights; the checkpoint is `runs/name.pt`.
        recipe: how to train it.
        out: folder of the weights, also of the parent's where there is one.
        runs: folder of the checkpoint.
        save_every: steps from one checkpoint to the next.

    Raises:
        ValueError: the checkpoint is of another recipe, or the parent's weights are not in `out`.
    """
    for folder in (out, runs):
        folder.mkdir(parents=True, exist_ok=True)
    with _repeatable():
        seconds = _run_steps(name, recipe, out, runs / f"{name}.pt", save_every)
        _record(name, recipe, out, seconds)


def _run_steps(name: str, recipe: Recipe, out: Path, checkpoint: Path, save_every: int) -> float:
    """Take the steps that are left, write the weights, and return the seconds that all steps took."""
    model = starting_model(recipe, out).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    done, seconds = _resume(checkpoint, recipe, model, optimizer)
    began = time.perf_counter() - seconds
    bar = tqdm(total=recipe.steps, initial=done, desc=name, file=sys.stdout, mininterval=1.0)
    with bar:
        for step in range(done, recipe.steps):
            loss = _train_step(model, optimizer, recipe, step)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()
            if (step + 1) % save_every == 0 or step + 1 == recipe.steps:
                seconds = time.perf_counter() - began
                _save(checkpoint, recipe, model, optimizer, step + 1, seconds)
    weights.write(out / f"{name}.safetensors", recipe.config, model.state_dict())
    return seconds


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Add numbers in the same order, run after run, inside the `with` block."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)


def attention_layer(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
    """Compute lesson 01's attention layer with PyTorch's fused kernel, which is faster."""
    q = split_heads(attn.wq(x), attn.n_heads)  # (B, H, T, D)
    k = split_heads(attn.wk(x), attn.n_kv_heads)  # (B, G, T, D)
    v = split_heads(attn.wv(x), attn.n_kv_heads)  # (B, G, T, D)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    seen = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=attn.n_heads != attn.n_kv_heads
    )
    return attn.wo(merge_heads(seen))


def starting_model(recipe: Recipe, out: Path) -> MiniGPT:
    """Make the model of step 0: at random, or pooled from its parent's weights in `out`."""
    if recipe.parent is None:
        model = MiniGPT(recipe.config, attention_layer)
        initialize(model)
    else:
        parent = out / f"{recipe.parent}.safetensors"
        if not parent.exists():
            raise ValueError(
                f"its heads are pooled from {parent}, which is missing; train it first"
            )
        config, state = weights.load(parent)
        pooled = mean_pool_kv_heads(state, config, recipe.config.n_kv_heads)
        model = MiniGPT.from_state(recipe.config, pooled, attention_layer)
    return model.requires_grad_(True)


def initialize(model: MiniGPT) -> None:
    """Draw the weights.

    Embeddings have standard deviation 1, so that tokens are far apart from the start; all others 0.02,
    smaller by √(2L) where they add to the residual stream (as in GPT-2).
    """
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            continue  # the norms start at 1
        spread = 1.0 if name == "embed.weight" else 0.02
        if name.endswith(("wo.weight", "down.weight")):
            spread /= (2 * model.config.n_layers) ** 0.5
        torch.nn.init.normal_(weight, std=spread, generator=generator)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Compute the rate of a step: it rises linearly, stays, and falls to zero over the last 40 %."""
    up = (step + 1) / WARMUP
    down = (recipe.steps - step) / (0.4 * recipe.steps)
    return recipe.rate * min(1.0, up, down)


def texts_of_step(recipe: Recipe, step: int) -> tuple[Tensor, Tensor]:
    """Draw what the model reads in a step, and its targets, (batch, length) int64 each.

    They depend on the number of the step alone, so a resumed run reads what it would have read.
    """
    first = 0
    for phase in recipe.phases:
        if step < first + phase.steps:
            break
        first += phase.steps
    draw = {"repeats": repeats, "stories": rows_of_stories}[phase.text]
    return draw(step, phase.batch, phase.length)


def repeats(seed: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw rows of random words that repeat, with a period of 4 to 24 words in each row.

    Targets before the first repeat are IGNORED: nobody could know them.
    """
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(2, VOCAB_SIZE, (batch, length + 1), generator=generator)  # no specials
    period = torch.randint(4, 25, (batch, 1), generator=generator)
    place = torch.arange(length + 1).expand(batch, -1)  # (batch, length + 1)
    rows = words.gather(1, place % period)  # (batch, length + 1)
    return rows[:, :-1], rows[:, 1:].masked_fill(place[:, 1:] < period, IGNORED)


def rows_of_stories(seed: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw rows that begin with a story and go on with others, cut at their length."""
    draw = random.Random(seed)
    rows = torch.empty(batch, length + 1, dtype=torch.int64)
    for row in rows:
        filled = 0
        while filled < len(row):
            story = encode(f"{tell(draw.randrange(TRAINING_SEEDS)).text} {WORDS[END]}")[0]
            story = story[: len(row) - filled]
            row[filled : filled + len(story)] = story
            filled += len(story)
    return rows[:, :-1], rows[:, 1:]


def _train_step(
    model: MiniGPT,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    step: int,
    further_loss: Callable[[], Tensor] | None = None,
) -> float:
    """Take one step and return its loss, to which that of `further_loss` is added after the pass."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(recipe, step)
    tokens, targets = texts_of_step(recipe, step)
    logits = model(tokens)  # (batch, length, V)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    if further_loss:
        loss = loss + further_loss()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return loss.item()


def _save(
    path: Path,
    recipe: Recipe,
    model: MiniGPT,
    optimizer: torch.optim.Optimizer,
    done: int,
    seconds: float,
) -> None:
    """Write a checkpoint."""
    state = {
        "made by": _signature(recipe),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "done": done,
        "seconds": seconds,
    }
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)  # atomically, so that an interrupted run leaves no broken checkpoint


def _resume(
    path: Path, recipe: Recipe, model: MiniGPT, optimizer: torch.optim.Optimizer
) -> tuple[int, float]:
    """Load a checkpoint into model and optimizer; return the steps done and seconds spent so far."""
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, weights_only=True)
    if state["made by"] != _signature(recipe):
        raise ValueError(f"{path} is of another recipe or vocabulary; delete it to start anew")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["done"], state["seconds"]


def _signature(recipe: Recipe) -> str:
    """Tell checkpoints of one recipe and vocabulary from others."""
    return f"{recipe} {FINGERPRINT}"


def _record(name: str, recipe: Recipe, out: Path, seconds: float) -> None:
    """Measure the weights as they were written, and record it beside them in metrics.json."""
    config, state = weights.load(out / f"{name}.safetensors")
    measured = evaluate(MiniGPT.from_state(config, state, attention_layer), held_out(HELD_OUT))
    path = out / "metrics.json"
    recorded = json.loads(path.read_text()) if path.exists() else {}
    machine = f"{platform.machine()}, {THREADS} threads, torch {torch.__version__}"
    recorded[name] = {
        **measured,
        "stories": HELD_OUT,
        "steps": recipe.steps,
        "seconds": round(seconds),
        "machine": machine,
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    partial.replace(path)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m course.world.train", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--only", choices=RECIPES, metavar="NAME", help=f"one of {', '.join(RECIPES)}"
    )
    parser.add_argument("--out", type=Path, default=weights.FOLDER, metavar="DIR",
                        help="folder of the weights (default: course/weights)")  # fmt: skip
    asked = parser.parse_args(arguments)
    names = [asked.only] if asked.only else list(RECIPES)
    try:
        for name in names:
            print(_announcement(name), flush=True)
            train(name, RECIPES[name], asked.out, RUNS)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from the last checkpoint.")
        return 130
    for name in names:
        (RUNS / f"{name}.pt").unlink()
    print(f"Written to {asked.out}: {', '.join(names)}")
    return 0


def _announcement(name: str) -> str:
    """Say what will be trained, and how long it took before."""
    recipe = RECIPES[name]
    parameters = sum(weight.numel() for weight in MiniGPT(recipe.config).parameters())
    taken = ""
    with contextlib.suppress(ValueError):
        recorded = weights.metrics(name)
        taken = f"; it took {recorded['seconds']} s on {recorded['machine']}"
    return f"{name}: {parameters:,} parameters, {recipe.steps:,} steps{taken}"


if __name__ == "__main__":
    sys.exit(main())
