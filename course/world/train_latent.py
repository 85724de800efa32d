"""Make the siblings of the story model that keep latents: convert its weights, then train.

    python -m course.world.train_latent                              all of them
    python -m course.world.train_latent --only story-latent-16-16    one of them
    python -m course.world.train_latent --out DIR                    somewhere else than course/weights

Each is trained exactly as the GQA siblings of `course.world.train` are: the same texts, steps and
rates, on one thread. Some 6 minutes each on an idle core; an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from course import weights
from course.given.latent import LatentAttention, LatentGPT
from course.minigpt.mini_gpt import merge_heads, split_heads
from course.model.config import GPTConfig
from course.world import siblings
from course.world import train as training
from course.world.evaluation import evaluate, held_out

SIBLINGS = {
    "story-latent-16-16": (16, 16),
    "story-latent-48-16": (48, 16),
    "story-latent-24-8": (24, 8),
}
"""The widths of latent and rotated key."""
SHIPPED = "story-latent-16-16"
"""The others are trained to be compared: their recall is recorded, their weights stay in runs/."""
PARENT = "story"
RECIPE = training.RECIPES["story-g1"]
"""Whose texts, steps and rates are taken."""


def expanded_layer(attn: LatentAttention, x: Tensor, positions: Tensor) -> Tensor:
    """One layer over a whole text, without a cache, in which every key and value is made."""
    H, D = attn.n_heads, attn.head_dim
    queries = split_heads(attn.wq(x), H)  # (B, H, T, D + R)
    latent, shared = attn.down(x).split([attn.rank, attn.d_rope], dim=-1)
    keys = split_heads(attn.up_k(latent), H)  # (B, H, T, D)
    values = split_heads(attn.up_v(latent), H)  # (B, H, T, D)
    turned = attn.rotate(shared.unsqueeze(1), positions).expand(-1, H, -1, -1)  # (B, H, T, R)
    queries = torch.cat([queries[..., :D], attn.rotate(queries[..., D:], positions)], dim=-1)
    keys = torch.cat([keys, turned], dim=-1)  # (B, H, T, D + R)
    # The width of queries and keys, D + R, is the one by which PyTorch scales.
    return attn.wo(
        merge_heads(F.scaled_dot_product_attention(queries, keys, values, is_causal=True))
    )


def convert(
    state: dict[str, Tensor], config: GPTConfig, rank: int, d_rope: int
) -> dict[str, Tensor]:
    """Turn the weights of a model with a key and value head for each query head into those of latents.

    The latent is what a singular value decomposition keeps of wk and wv together. The shared rotated
    key is the mean of all heads' keys, of which every (D / R)-th pair is taken. Each head's query
    serves both.
    """
    H, D, C = config.n_heads, config.head_dim, config.d_model
    half, step = D // 2, D // d_rope
    pairs = torch.arange(0, half, step)
    pairs = torch.cat([pairs, pairs + half])  # (R,) of a head's D numbers
    converted = {}
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            continue
        if not name.endswith("wq.weight"):
            converted[name] = weight
            continue
        prefix = name.removesuffix("wq.weight")
        heads = weight.view(H, D, C)
        queries = torch.cat([heads, heads[:, pairs]], dim=1)  # (H, D + R, C)
        keys, values = state[f"{prefix}wk.weight"], state[f"{prefix}wv.weight"]
        left, sizes, right = torch.linalg.svd(torch.cat([keys, values]).double())
        root = sizes[:rank].sqrt()
        up = (left[:, :rank] * root).float()  # (2 * H * D, rank)
        shared = keys.view(H, D, C).mean(dim=0)[pairs]  # (R, C)
        down = torch.cat([(root[:, None] * right[:rank]).float(), shared])
        parts = {"wq": queries.reshape(-1, C), "down": down}
        parts |= {"up_k": up[: H * D], "up_v": up[H * D :]}
        converted |= {f"{prefix}{part}.weight": tensor for part, tensor in parts.items()}
    return converted


def starting_model(rank: int, d_rope: int, out: Path) -> LatentGPT:
    """Make the model of step 0 from its parent's weights in `out`, or else from those shipped."""
    parent = out / f"{PARENT}.safetensors"
    config, state = weights.load(parent) if parent.exists() else weights.read(PARENT)
    return LatentGPT.from_latent_state(config, convert(state, config, rank, d_rope), expanded_layer)


def train(name: str, out: Path, runs: Path) -> None:
    """Train one sibling, from its checkpoint if there is one; write its weights and metrics."""
    rank_and_rope = SIBLINGS[name]
    folder = out if name == SHIPPED else runs
    model = starting_model(*rank_and_rope, out)
    seconds = siblings.train_sibling(name, model, RECIPE, folder, runs)
    untrained = evaluate(starting_model(*rank_and_rope, out), held_out(training.HELD_OUT))
    config, state = weights.load(folder / f"{name}.safetensors")
    trained = LatentGPT.from_latent_state(config, state, expanded_layer)
    converted = {"recall_place_far_converted": untrained["recall_place_far"]}
    siblings.record(name, trained, RECIPE.steps, seconds, out / "metrics.json", converted)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    summary = (
        "Make the siblings of the story model that keep latents: convert its weights, then train."
    )
    module = "course.world.train_latent"
    return siblings.run_command(module, summary, SIBLINGS, train, arguments)


if __name__ == "__main__":
    sys.exit(main())
