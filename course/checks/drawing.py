"""Draw what challenges are made of: small random models, tokens and chunk splits, as plain arrays."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from course.model import MiniGPT
from course.model.config import GPTConfig
from course.world.tokenizer import END, PAD

CLEAR_LEAD = 0.1
"""By how much a logit leads where a wrong choice is sure to show: a thousand times the tolerance."""


def draw_model(rng: np.random.Generator, **sizes: int) -> dict[str, Any]:
    """Draw a model: `config` (sizes) and `state` (float32 arrays named as in state_dict()).

    No two sizes are equal, so that a mixed-up axis shows; the weights are sharp, so that attention
    looks at few tokens and a wrong position or mask moves the logits by far more than rounding.
    """
    defaults = {"vocab_size": 50, "n_layers": 3, "d_model": 24, "n_heads": 4, "n_kv_heads": 2}
    config = GPTConfig(**{**defaults, "d_ff": 40, "max_seq_len": 64, **sizes})
    state = draw_state(rng, _shapes_of(replace(config, max_seq_len=1)))
    return {"config": config.to_dict(), "state": state}


def draw_state(
    rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Draw the weights of a model, float32, by their names and shapes."""
    state = {}
    for name, shape in shapes.items():
        if "norm" in name:
            array = rng.uniform(0.5, 1.5, shape)
        else:
            spread = 1.0 if name == "embed.weight" else 1.5 / np.sqrt(shape[1])
            array = rng.normal(0.0, spread, shape)
        state[name] = array.astype(np.float32)
    return state


@cache
def _shapes_of(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Name the weights of a model, each with its shape; its longest text makes no difference."""
    model = MiniGPT(config, attention_layer=lambda *_: None)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def build_model(challenge: dict[str, Any], attention_layer: Any = None) -> MiniGPT:
    """Build the MiniGPT of a challenge, float32."""
    state = {name: torch.from_numpy(array.copy()) for name, array in challenge["state"].items()}
    return MiniGPT.from_state(GPTConfig(**challenge["config"]), state, attention_layer)


def draw_tokens(rng: np.random.Generator, batch: int, length: int, vocab_size: int) -> np.ndarray:
    """Draw tokens (B, T) int64, every row different."""
    while True:
        tokens = rng.integers(0, vocab_size, (batch, length))
        if len(np.unique(tokens, axis=0)) == batch:
            return tokens


def draw_rows(rng: np.random.Generator, length: int, vocab_size: int) -> np.ndarray:
    """Draw four rows of tokens (4, T) int64: two that differ, one that differs from the second in its
    last token alone, and the first once more."""
    first, second = draw_tokens(rng, 2, length, vocab_size)
    late = second.copy()
    late[-1] = (late[-1] + rng.integers(1, vocab_size)) % vocab_size
    return np.stack([first, second, late, first])


def with_end_next(challenge: dict[str, Any], likeliest: list[int]) -> dict[str, Any]:
    """Exchange rows of `lm_head`, so that `<end>` is the likeliest token after the first prompt, and
    `<pad>` after a later one for which another token is.

    Args:
        likeliest: the likeliest token after each prompt.
    """
    first, *later = likeliest
    head = challenge["state"]["lm_head.weight"].copy()
    head[[END, first]] = head[[first, END]]
    for other in [token for token in later if token not in (first, END)][:1]:
        head[[PAD, other]] = head[[other, PAD]]
    return {**challenge, "state": {**challenge["state"], "lm_head.weight": head}}


def draw_rows_with_end_next(
    rng: np.random.Generator, challenge: dict[str, Any], length: int
) -> dict[str, Any]:
    """Draw rows as `draw_rows` does, as `prompt` of the challenge, and exchange rows of its `lm_head` as
    `with_end_next` does; drawn again while the same token is the likeliest after all of them, or one of
    the likeliest leads by so little that a tolerance might hide who never chooses it."""
    while True:
        prompt = draw_rows(rng, length, challenge["config"]["vocab_size"])
        likeliest, leads = likeliest_next(challenge, prompt)
        if set(likeliest[1:]) - {likeliest[0], END} and min(leads) > CLEAR_LEAD:
            return {**with_end_next(challenge, likeliest), "prompt": prompt}


def with_near_ties(challenge: dict[str, Any]) -> dict[str, Any]:
    """Make logits large, and every second row of `lm_head` nearly the one before: where its logit is
    above 0, it leads by more than any tolerance, and by so little that float16 shows no difference."""
    head = 30 * challenge["state"]["lm_head.weight"]
    head[1::2] = head[::2] * np.float32(1 + 3e-4)
    return {**challenge, "state": {**challenge["state"], "lm_head.weight": head}}


def likeliest_next(challenge: dict[str, Any], prompt: np.ndarray) -> tuple[list[int], list[float]]:
    """Name the likeliest token after each row of a prompt (B, T), and by how much its logit leads."""
    logits = build_model(challenge)(torch.from_numpy(prompt.copy()))[:, -1]  # (B, V)
    best, second = logits.topk(2).values.unbind(-1)
    return logits.argmax(dim=-1).tolist(), (best - second).tolist()


def draw_split(rng: np.random.Generator, total: int) -> list[int]:
    """Draw lengths of chunks, at least 1 each, that add up to `total`."""
    cuts = np.flatnonzero(rng.random(total - 1) < 0.4) + 1
    return np.diff([0, *cuts, total]).tolist()
