"""The parts of one layer of the mini-GPT: RMSNorm, the matrices of attention, the feed-forward.

What an attention layer computes with its matrices is lesson 01's `attention_layer`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.model.config import GPTConfig
from course.model.rotary import rotary_table, rotate


class RMSNorm(nn.Module):
    """Scale each vector to root-mean-square 1, then by a learned weight. Zhang & Sennrich 2019."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Hold the four matrices of one attention layer and its sizes; lesson 01 computes with them.

    Args:
        config: the sizes.
        table: from `rotary_table`; the layers of a model share one. Left out, it is made here.
    """

    def __init__(self, config: GPTConfig, table: Tensor | None = None) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = config.n_heads, config.n_kv_heads
        self.head_dim = config.head_dim
        C, D = config.d_model, config.head_dim
        self.wq = nn.Linear(C, config.n_heads * D, bias=False)
        self.wk = nn.Linear(C, config.n_kv_heads * D, bias=False)
        self.wv = nn.Linear(C, config.n_kv_heads * D, bias=False)
        self.wo = nn.Linear(config.n_heads * D, C, bias=False)
        if table is None:
            table = rotary_table(config.max_seq_len, D, config.rope_theta)
        self.register_buffer("rotary_table", table, persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries (B, H, T, D) or keys (B, G, T, D) by positions, (T,) or (B, T) int64."""
        return rotate(x, positions, self.rotary_table)


class SwiGLU(nn.Module):
    """Compute the feed-forward part: (silu(x·gate) * (x·up))·down. Shazeer 2020."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Hold one layer's parts; the model computes x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: GPTConfig, table: Tensor | None = None) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config, table)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = SwiGLU(config.d_model, config.d_ff)
