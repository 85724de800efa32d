"""Make siblings of the story model with experts: cut its feed-forward in two and copy it, then train.

    python -m course.world.train_experts                       both of them
    python -m course.world.train_experts --only story-moe-8-2  one of them
    python -m course.world.train_experts --out DIR             somewhere else than course/weights

One is trained with a loss that asks for equal use of all experts (Fedus et al. 2021), and shipped; the
other, without it, is there to be compared: what was measured of it is recorded, its weights stay in
runs/. Some five minutes each on one idle core; an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from course import weights
from course.given.experts import MoEGPT
from course.minigpt.mixture_of_experts import moe_grouped, route
from course.model.config import GPTConfig
from course.world import siblings
from course.world import train as training
from course.world.evaluation import held_out
from course.world.tokenizer import encode

PARENT = "story"
N_EXPERTS, K = 8, 2
HALVES = 2
"""Into as many parts the parent's feed-forward is cut; a token uses one copy of each at first."""
SIBLINGS = {"story-moe-8-2": 0.01, "story-moe-8-2-unbalanced": 0.0}
"""How much the loss of balance counts."""
SHIPPED = "story-moe-8-2"
RECIPE = training.Recipe(
    training.RECIPES[PARENT].config, (training.Phase("stories", 200, 16, 256),), rate=2e-3
)
READ = 80
"""Held-out stories on which the use of experts is measured."""


def cut_and_copy(state: dict[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """Turn the weights of a model into those of a mixture of experts that computes the same.

    Experts 0 … 3 are copies of the first half of the feed-forward, 4 … 7 of the second. A router's rows
    of the two halves are equal, so that a token uses one copy of each, with a weight of a half; so what
    they write is doubled.
    """
    generator = torch.Generator().manual_seed(0)
    copies, made = N_EXPERTS // HALVES, {}
    for name, tensor in state.items():
        prefix, mlp, part = name.partition(".mlp.")
        if not mlp:
            made[name] = tensor
            continue
        axis = 1 if part == "down.weight" else 0  # down reads the width, gate and up write it
        for half, rows in enumerate(tensor.chunk(HALVES, dim=axis)):
            scale = HALVES if part == "down.weight" else 1
            for copy in range(copies):
                made[f"{prefix}.mlp.experts.{half * copies + copy}.{part}"] = scale * rows.clone()
    for layer in range(config.n_layers):
        rows = 0.02 * torch.randn(copies, config.d_model, generator=generator)
        made[f"blocks.{layer}.mlp.router.weight"] = torch.cat([rows] * HALVES)
    return made


def starting_model(out: Path) -> MoEGPT:
    """Make the model of step 0 from its parent's weights in `out`, or else from those shipped."""
    parent = out / f"{PARENT}.safetensors"
    config, state = weights.load(parent) if parent.exists() else weights.read(PARENT)
    return MoEGPT.from_moe_state(
        config, cut_and_copy(state, config), K, route, moe_grouped, training.attention_layer
    )


def imbalance(model: MoEGPT, logits: dict[int, Tensor]) -> Tensor:
    """Compute the loss of balance of the last pass, 1 where all experts are used alike.

    For each layer N times the sum over experts of their share of the choices and their mean
    probability; then the mean of all layers. Source: Fedus et al. 2021, for k choices.

    Args:
        model: after its pass.
        logits: by layer (n, N), of its routers in that pass.
    """
    losses = []
    for layer, chosen in enumerate(model.chosen()):
        shares = torch.bincount(chosen.flatten(), minlength=N_EXPERTS) / chosen.numel()
        losses.append(N_EXPERTS * (shares * logits[layer].softmax(dim=-1).mean(dim=0)).sum())
    return torch.stack(losses).mean()


def train(name: str, out: Path, runs: Path) -> None:
    """Train one sibling, from its checkpoint if there is one; write its weights and metrics."""
    folder, model = out if name == SHIPPED else runs, starting_model(out)
    logits: dict[int, Tensor] = {}
    for number, block in enumerate(model.blocks):
        block.mlp.router.register_forward_hook(
            lambda _, __, made, number=number: logits.__setitem__(number, made)
        )
    seconds = siblings.train_sibling(
        name, model, RECIPE, folder, runs,
        further_loss=lambda: SIBLINGS[name] * imbalance(model, logits),
    )  # fmt: skip
    config, state = weights.load(folder / f"{name}.safetensors")
    trained = MoEGPT.from_moe_state(config, state, K, route, moe_grouped, training.attention_layer)
    use = use_of_experts(trained)
    siblings.record(name, trained, RECIPE.steps, seconds, out / "metrics.json", use)


@torch.no_grad()
def use_of_experts(model: MoEGPT) -> dict[str, float]:
    """Measure how many experts of a layer 5 and 16 tokens in a row read, and how unequal their use is."""
    read: dict[int, list[int]] = {5: [], 16: []}
    uses = torch.zeros(len(model.blocks), N_EXPERTS)
    for story in held_out(READ):
        model(encode(story.text))
        for layer, chosen in enumerate(model.chosen()):
            uses[layer] += torch.bincount(chosen.flatten(), minlength=N_EXPERTS)
            for n in read:
                for start in range(0, len(chosen) - n + 1, n):
                    read[n].append(len(chosen[start : start + n].unique()))
    shares = uses / uses.sum(dim=1, keepdim=True) * N_EXPERTS  # 1: as often as all others
    return {
        "experts_read_of_5": sum(read[5]) / len(read[5]),
        "experts_read_of_16": sum(read[16]) / len(read[16]),
        "busiest_expert": shares.max().item(),
        "rarest_expert": shares.min().item(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    module = "course.world.train_experts"
    summary = (
        "Make siblings of the story model with experts: cut its feed-forward in two, copy, train."
    )
    return siblings.run_command(module, summary, SIBLINGS, train, arguments)


if __name__ == "__main__":
    sys.exit(main())
