"""Train models that are converted from one that the course ships, and record what they recall."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from course import weights
from course.model import MiniGPT
from course.world import train as training
from course.world.evaluation import evaluate, held_out

Forward = Callable[[Tensor], Tensor]
"""Turns tokens (B, T) into logits (B, T, V)."""


def train_sibling(
    name: str,
    model: MiniGPT,
    recipe: training.Recipe,
    out: Path,
    runs: Path,
    save_every: int = 50,
    further_loss: Callable[[], Tensor] | None = None,
) -> float:
    """Train a converted model on one thread, from its checkpoint if there is one, and write its weights.

    Args:
        name: of the weights, `out/name.safetensors`.
        model: at step 0.
        recipe: whose texts, steps and rates are taken.
        out: folder of the weights.
        runs: folder of the checkpoint.
        save_every: steps from one checkpoint to the next.
        further_loss: added to the loss of each step, after its pass.

    Returns:
        The seconds that all steps took, those of earlier runs included.
    """
    for folder in (out, runs):
        folder.mkdir(parents=True, exist_ok=True)
    checkpoint = runs / f"{name}.pt"
    with training._repeatable():
        torch.set_num_threads(1)
        model.train().requires_grad_(True)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        done, seconds = training._resume(checkpoint, recipe, model, optimizer)
        began = time.perf_counter() - seconds
        for step in tqdm(range(done, recipe.steps), desc=name, file=sys.stdout, mininterval=5.0):
            training._train_step(model, optimizer, recipe, step, further_loss)
            if (step + 1) % save_every == 0:
                seconds = time.perf_counter() - began
                training._save(checkpoint, recipe, model, optimizer, step + 1, seconds)
        weights.write(out / f"{name}.safetensors", model.config, model.state_dict())
    return seconds


def record(
    name: str,
    forward: Forward,
    steps: int,
    seconds: float,
    path: Path,
    also: dict[str, float] | None = None,
) -> None:
    """Measure a model as it was written, and record it in the file of metrics at `path`."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    recorded[name] = {
        **evaluate(forward, held_out(training.HELD_OUT)),
        **(also or {}),
        "stories": training.HELD_OUT,
        "steps": steps,
        "seconds": round(seconds),
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}",
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    partial.replace(path)


def run_command(
    module: str,
    summary: str,
    names: Collection[str],
    train: Callable[[str, Path, Path], None],
    arguments: Sequence[str] | None,
) -> int:
    """Run the command line of a trainer of siblings, and return the exit status.

    Args:
        module: of the trainer, as `python -m` wants it.
        summary: a line for --help.
        names: of the siblings.
        train: trains the one of a name; its weights go to a folder, its checkpoint to another.
        arguments: of the command line; None: those of the process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=summary)
    parser.add_argument("--only", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=weights.FOLDER, metavar="DIR",
                        help="folder of the weights (default: course/weights)")  # fmt: skip
    asked = parser.parse_args(arguments)
    chosen = [asked.only] if asked.only else list(names)
    try:
        for name in chosen:
            train(name, asked.out, training.RUNS)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from the last checkpoint.")
        return 130
    for name in chosen:
        with contextlib.suppress(FileNotFoundError):
            (training.RUNS / f"{name}.pt").unlink()
    print(f"Written to {asked.out}: {', '.join(chosen)}")
    return 0
