"""What published models have that the mini-GPT of the lessons has not, and how it is added to one.

    config = PublishedConfig(…, qkv_bias=True)        # Qwen2
    model = empty_model(config)                       # a MiniGPT whose weights have no numbers yet

* Llama 3.1 and 3.2 were stretched to longer texts: slow rotations are slower (`stretched`).
* Qwen2 adds a bias to queries, keys and values.
* Qwen3 norms each head of queries and keys, as in Dehghani et al. 2023; the widths of its heads, and of
  some Mistrals', are not d_model // n_heads.

All of it stands inside the parts that lessons use by name (`wq`, `wk`, `wv`, `rotate`), so what students
wrote need not know of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course.model import AttentionLayer, MiniGPT
from course.model.config import GPTConfig
from course.model.layers import RMSNorm


class Stretch(NamedTuple):
    """How Llama 3 slows rotations down (`rope_type` llama3): those that turn fewer than `slow` times in a
    text of `trained` tokens by the factor, those that turn more than `fast` times not, between them by
    degrees."""

    factor: float
    slow: float
    fast: float
    trained: int


@dataclass(frozen=True)
class PublishedConfig(GPTConfig):
    """Sizes of a published model.

    Attributes:
        head_width: D, or None for d_model // n_heads.
        qkv_bias: whether queries, keys and values have a bias.
        head_norms: whether each head of queries and keys is normed.
        stretch: how rotations are slowed down, or None.
        window: tokens that a token sees in each layer, itself included, or None for all. The model's own
            forward pass sees all: longer texts need lesson 08's cache.
    """

    head_width: int | None = None
    qkv_bias: bool = False
    head_norms: bool = False
    stretch: Stretch | None = None
    window: int | None = None

    @property
    def head_dim(self) -> int:
        """D, the width of one head."""
        return self.head_width or super().head_dim


class HeadsProjection(nn.Linear):
    """A matrix whose output is heads side by side, each normed by one weight (D,)."""

    def __init__(self, d_model: int, width: int, bias: bool, norm: RMSNorm | None) -> None:
        super().__init__(d_model, width, bias=bias)
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        heads = super().forward(x)  # (B, T, heads * D)
        if self.norm is None:
            return heads
        return self.norm(heads.unflatten(-1, (-1, len(self.norm.weight)))).flatten(-2)


def empty_model(config: PublishedConfig, attention_layer: AttentionLayer | None = None) -> MiniGPT:
    """Make a model whose weights have shapes and no numbers: `load_state_dict(…, assign=True)` gives it
    those of a checkpoint without a copy."""
    with torch.device("meta"):
        model = MiniGPT(config, attention_layer)
        for block in model.blocks if config.qkv_bias or config.head_norms else ():
            attn, D = block.attn, config.head_dim
            for name in ("wq", "wk", "wv"):
                norm = RMSNorm(D, config.norm_eps) if config.head_norms and name != "wv" else None
                width = getattr(attn, name).out_features
                projection = HeadsProjection(config.d_model, width, config.qkv_bias, norm)
                setattr(attn, name, projection)
    table = rotary_table(config)
    for block in model.blocks:
        block.attn.rotary_table = table
    return model.requires_grad_(False).eval()


def rotary_table(config: PublishedConfig) -> Tensor:
    """Tabulate cosines and sines as `course.model.rotary.rotary_table` does, of stretched frequencies."""
    D = config.head_dim
    frequencies = config.rope_theta ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    if config.stretch:
        frequencies = stretched(frequencies, config.stretch)
    angles = torch.outer(torch.arange(config.max_seq_len, dtype=torch.float64), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)]).float()


def stretched(frequencies: Tensor, stretch: Stretch) -> Tensor:
    """Slow frequencies (D/2,) down as Llama 3.1 does: source is `rope_scaling` in its config.json, and
    `_compute_llama3_parameters` in `transformers`."""
    turns = stretch.trained * frequencies / (2 * math.pi)
    kept = ((turns - stretch.slow) / (stretch.fast - stretch.slow)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / stretch.factor)
