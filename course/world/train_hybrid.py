"""Make the siblings of the story model whose layers keep a state: convert its weights, then train.

    python -m course.world.train_hybrid                        both of them
    python -m course.world.train_hybrid --only story-hybrid    one of them
    python -m course.world.train_hybrid --out DIR              somewhere else than course/weights

Both start with all of the parent's matrices. New are the gates, which start at one value for each head,
and the convolutions, which start by changing nothing. Then they read repeats and stories, on one thread;
an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from course import weights
from course.given.hybrid import HybridGPT, forward_hybrid
from course.minigpt.linear_state import delta_chunk, delta_step
from course.model.config import GPTConfig
from course.world import siblings
from course.world import train as training

SIBLINGS = {
    "story-hybrid": (False, False, False, True),
    "story-linear": (False, False, False, False),
}
"""Which layers are full: every fourth, as in Qwen3-Next, or none."""
PARENT = "story"
RECIPE = training.Recipe(
    training.RECIPES[PARENT].config,
    (training.Phase("repeats", 150, 48, 64), training.Phase("stories", 650, 16, 256)),
    rate=2e-3,
    parent=PARENT,
)
BETA, DECAYS = 0.73, (0.88, 0.998)
"""Where the gates start: every head writes alike, and the heads of a layer fade from fast to slow."""


class WholeTexts:
    """Stand in for a cache where whole texts are read at once and nothing is kept of them."""

    def __init__(self, model: HybridGPT, batch: int) -> None:
        self.sizes, self.batch, self.max_len = model.sizes, batch, model.config.max_seq_len

    def __len__(self) -> int:
        return 0

    def state(self, layer: int) -> tuple[Tensor, Tensor]:
        sizes = self.sizes
        S = torch.zeros(self.batch, sizes.value_heads, sizes.key_dim, sizes.value_dim)
        return S, torch.zeros(self.batch, sizes.width - 1, sizes.channels)

    def keep(self, layer: int, S: Tensor, tail: Tensor) -> None: ...

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v

    def advance(self, n: int) -> None: ...


class UncachedHybrid(HybridGPT):
    """A HybridGPT that is called with whole texts, (B, T) int64, and returns logits (B, T, V)."""

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        texts = WholeTexts(self, len(tokens))
        return forward_hybrid(self, tokens, texts, delta_step, delta_chunk)


def convert(state: dict[str, Tensor], config: GPTConfig, full: Sequence[bool]) -> dict[str, Tensor]:
    """Add what linear layers need to the weights of a model with a key and value head a query head."""
    H, C = config.n_heads, config.d_model
    decays = torch.linspace(*(torch.tensor(DECAYS).logit().tolist()), H)  # evenly, as logits
    bias = torch.cat([torch.tensor(BETA).logit().expand(H), decays])  # (2 * H,)
    mix = torch.zeros(3 * C, 4)
    mix[:, -1] = 1.0  # of the token's own row alone
    added = {"mix": mix, "gates.weight": torch.zeros(2 * H, C), "gates.bias": bias}
    converted = dict(state)
    for layer, is_full in enumerate(full):
        if not is_full:
            for name, tensor in added.items():
                converted[f"blocks.{layer}.attn.{name}"] = tensor.clone()
    return converted


def starting_model(name: str, out: Path) -> HybridGPT:
    """Make the model of step 0 from its parent's weights in `out`, or else from those shipped."""
    parent = out / f"{PARENT}.safetensors"
    config, state = weights.load(parent) if parent.exists() else weights.read(PARENT)
    return UncachedHybrid.from_hybrid_state(config, convert(state, config, SIBLINGS[name]))


def train(name: str, out: Path, runs: Path) -> None:
    """Train one sibling, from its checkpoint if there is one; write its weights and metrics."""
    seconds = siblings.train_sibling(name, starting_model(name, out), RECIPE, out, runs)
    trained = UncachedHybrid.from_hybrid_state(*weights.load(out / f"{name}.safetensors"))
    siblings.record(name, trained, RECIPE.steps, seconds, out / "metrics.json")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    summary = "Make the siblings of the story model whose layers keep a state."
    return siblings.run_command("course.world.train_hybrid", summary, SIBLINGS, train, arguments)


if __name__ == "__main__":
    sys.exit(main())
