"""A layer's weights laid side by side, and its work around attention in fewer operations.

    fast = FastWeights(model)
    x, turns = fast.embedded(tokens, positions)
    for layer in fast.layers:
        q, k, v = heads_of(x, layer, turns)
        x = after_attention(x, read, layer)          # read: what q found in the keys, however they lie
    logits = fast.logits(x[:, -1])

Matrices that read the same numbers are multiplied once: wq, wk, wv, and the two halves of SwiGLU. What an
RMSNorm needs beside its input is computed once, and so are a pass's cosines and sines.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from course.model import MiniGPT
from course.model.layers import Block, RMSNorm


class Norm(NamedTuple):
    """An RMSNorm's weight, and what need not be computed again at every step."""

    weight: Tensor  # (C,)
    eps: float
    scaled: Tensor  # (C,): √C · weight
    least: Tensor  # (): √(C · eps)


class Layer(NamedTuple):
    """One layer's weights: H query heads and G KV heads of D numbers, side by side in one matrix."""

    n_heads: int
    n_kv_heads: int
    attn_norm: Norm
    qkv: Tensor  # ((H + 2 G) * D, C)
    out: Tensor  # (C, H * D)
    mlp_norm: Norm
    gate_up: Tensor  # (2 * d_ff, C)
    down: Tensor  # (C, d_ff)


class FastWeights:
    """The weights of a model as they are now, partly copied; the model stays as it is.

    Attributes:
        embed: (V, C); turns: cosines and sines, (2, max_seq_len, D); layers: one `Layer` each.
    """

    @torch.no_grad()
    def __init__(self, model: MiniGPT) -> None:
        self.embed, self.norm = model.embed.weight, _norm_of(model.norm)
        self.head = _laid_out(model.lm_head.weight)
        self.layers = [_layer_of(block) for block in model.blocks]
        table = model.blocks[0].attn.rotary_table
        self.turns = table.to(self.embed.dtype)

    def embedded(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Look up tokens (B, T) and their positions, (T,) or (B, T): x (B, T, C), and the cosines and
        sines that turn their heads, (2, T, D) or (2, B, 1, T, D)."""
        turns = self.turns[:, positions]
        return F.embedding(tokens, self.embed), turns if positions.dim() == 1 else turns[:, :, None]

    def logits(self, x: Tensor) -> Tensor:
        """Logits (B, V) of the last layer's numbers (B, C)."""
        return F.linear(normed(x, self.norm), self.head)


def heads_of(x: Tensor, layer: Layer, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, H, T, D), keys and values (B, G, T, D) of x (B, T, C), turned by their positions."""
    (B, T, _), H, G = x.shape, layer.n_heads, layer.n_kv_heads
    heads = F.linear(normed(x, layer.attn_norm), layer.qkv)  # (B, T, (H + 2 G) * D)
    heads = heads.view(B, T, H + 2 * G, -1).transpose(1, 2)  # (B, H + 2 G, T, D)
    turned, v = heads[:, : H + G], heads[:, H + G :]  # queries and keys are turned alike
    turned = turned * turns[0] + turned.roll(turned.shape[-1] // 2, dims=-1) * turns[1]
    return turned[:, :H], turned[:, H:], v


def after_attention(x: Tensor, read: Tensor, layer: Layer) -> Tensor:
    """The rest of a layer: x (B, T, C) and what attention read, (B, H, T, D), to (B, T, C)."""
    B, T, _ = x.shape
    x = x + F.linear(read.transpose(1, 2).reshape(B, T, -1), layer.out)
    gate, up = F.linear(normed(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def normed(x: Tensor, norm: Norm) -> Tensor:
    """weight · x / √(mean(x²) + eps). On a CPU PyTorch makes a dozen operations of it; these are four,
    for the same √C · weight · x / √(|x|² + C · eps)."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.hypot(length, norm.least) * norm.scaled


def _norm_of(norm: RMSNorm) -> Norm:
    C, weight = len(norm.weight), norm.weight
    least = torch.tensor(math.sqrt(C * norm.eps), dtype=weight.dtype, device=weight.device)
    return Norm(weight, norm.eps, math.sqrt(C) * weight, least)


def _layer_of(block: Block) -> Layer:
    attn, mlp = block.attn, block.mlp
    return Layer(
        n_heads=attn.n_heads,
        n_kv_heads=attn.n_kv_heads,
        attn_norm=_norm_of(block.attn_norm),
        qkv=_laid_out(torch.cat([attn.wq.weight, attn.wk.weight, attn.wv.weight])),
        out=_laid_out(attn.wo.weight),
        mlp_norm=_norm_of(block.mlp_norm),
        gate_up=_laid_out(torch.cat([mlp.gate.weight, mlp.up.weight])),
        down=_laid_out(mlp.down.weight),
    )


def _laid_out(weight: Tensor) -> Tensor:
    """Lay out a matrix (out, in) for a CPU with its columns one after the other in memory: one row
    times it then adds up whole columns, a quarter faster than many short dot products."""
    return weight.t().contiguous().t() if weight.device.type == "cpu" else weight
