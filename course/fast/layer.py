"""Compute a layer of `course.model` in fewer operations, with attention left to the caller.

    fast = FastWeights(model)
    x, cos_sin = fast.embedded(tokens, positions)
    for layer in fast.layers:
        q, k, v = heads_of(x, layer, cos_sin)
        heads = …                                    # attention: keys and values are the caller's
        x = after_attention(x, heads, layer)
    logits = fast.logits(x[:, -1])

* Matrices that read the same numbers are multiplied as one: wq, wk and wv; gate and up of SwiGLU.
* The constants of each RMSNorm are computed once, and `normed` is four operations instead of 24.
* Cosines and sines are looked up once a pass, not twice a layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.model import MiniGPT
from course.model.layers import Block, RMSNorm


class Norm(NamedTuple):
    """An RMSNorm's weight and eps, and the constants that `normed` makes of them."""

    weight: Tensor  # (C,)
    eps: float
    scaled: Tensor  # (C,): √C · weight
    minimum: Tensor  # (): √(C · eps)


class Layer(NamedTuple):
    """One layer's weights: H query heads and G KV heads of D numbers, side by side in one matrix."""

    n_heads: int
    n_kv_heads: int
    attn_norm: Norm
    qkv: Tensor  # ((H + 2 G) * D, C)
    qkv_bias: Tensor | None  # ((H + 2 G) * D,)
    head_norms: tuple[Norm, Norm] | None  # of queries and of keys, (D,) each
    out: Tensor  # (C, H * D)
    mlp_norm: Norm
    gate_up: Tensor  # (2 * d_ff, C)
    down: Tensor  # (C, d_ff)


class FastWeights:
    """The weights of a model as they are now, partly copied.

    Args:
        shared: let the matrices of the model be views of these, so that memory holds them once. Left
            out, the model stays as it is.

    Attributes:
        config: the sizes of the model.
        embed: (V, C).
        cos_sin: cosines and sines of every position, (2, max_seq_len, D).
        layers: one `Layer` each.
    """

    @torch.no_grad()
    def __init__(self, model: MiniGPT, shared: bool = False) -> None:
        self.config = model.config
        self.embed, self.norm = model.embed.weight, norm_of(model.norm)
        self.head = _laid_out(model.lm_head.weight)
        if shared and model.lm_head.weight is not model.embed.weight:
            _replace(self.head, model.lm_head)
        self.layers = [_layer_of(block, shared) for block in model.blocks]
        table = model.blocks[0].attn.rotary_table
        self.cos_sin = table.to(self.embed.dtype)

    def embedded(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Look up tokens (B, T) and their positions, (T,) or (B, T).

        Returns:
            x (B, T, C), and the cosines and sines of the positions, (2, T, D) or (2, B, 1, T, D).
        """
        cos_sin = self.cos_sin[:, positions]
        if positions.dim() == 2:
            cos_sin = cos_sin[:, :, None]  # (2, B, 1, T, D), for every head
        return F.embedding(tokens, self.embed), cos_sin

    def logits(self, x: Tensor) -> Tensor:
        """Compute logits (B, V) or (B, T, V) of what the last layer gave, (B, C) or (B, T, C)."""
        return F.linear(normed(x, self.norm), self.head)


def heads_of(x: Tensor, layer: Layer, cos_sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute rotated queries (B, H, T, D), rotated keys and values (B, G, T, D) each, of x (B, T, C)."""
    (B, T, _), H, G = x.shape, layer.n_heads, layer.n_kv_heads
    heads = F.linear(normed(x, layer.attn_norm), layer.qkv, layer.qkv_bias)  # (B, T, (H + 2 G) * D)
    heads = heads.view(B, T, H + 2 * G, -1).transpose(1, 2)  # (B, H + 2 G, T, D)
    qk, v = heads[:, : H + G], heads[:, H + G :]
    if layer.head_norms:
        q_norm, k_norm = layer.head_norms
        qk = torch.cat([normed(qk[:, :H], q_norm), normed(qk[:, H:], k_norm)], dim=1)
    qk = qk * cos_sin[0] + qk.roll(qk.shape[-1] // 2, dims=-1) * cos_sin[1]  # as `rotate` does
    return qk[:, :H], qk[:, H:], v


def after_attention(x: Tensor, heads: Tensor, layer: Layer) -> Tensor:
    """Compute the rest of a layer: x (B, T, C) and attention's output (B, H, T, D) to (B, T, C)."""
    B, T, _ = x.shape
    x = x + F.linear(heads.transpose(1, 2).reshape(B, T, -1), layer.out)
    gate, up = F.linear(normed(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def normed(x: Tensor, norm: Norm) -> Tensor:
    """Compute RMSNorm: weight · x / √(mean(x²) + eps) = √C · weight · x / √(|x|² + C · eps).

    `F.rms_norm` has no kernel on a CPU: the profiler counts 24 operations there, and four here.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.hypot(length, norm.minimum) * norm.scaled


def norm_of(norm: RMSNorm) -> Norm:
    C, weight = len(norm.weight), norm.weight
    minimum = torch.tensor(math.sqrt(C * norm.eps), dtype=weight.dtype, device=weight.device)
    return Norm(weight, norm.eps, math.sqrt(C) * weight, minimum)


def _layer_of(block: Block, shared: bool) -> Layer:
    attn, mlp = block.attn, block.mlp
    three = (attn.wq, attn.wk, attn.wv)
    qkv = _laid_out(torch.cat([part.weight for part in three]))
    gate_up = _laid_out(torch.cat([mlp.gate.weight, mlp.up.weight]))
    out, down = _laid_out(attn.wo.weight), _laid_out(mlp.down.weight)
    if shared:
        for matrix, parts in ((qkv, three), (gate_up, (mlp.gate, mlp.up))):
            _replace(matrix, *parts)
        _replace(out, attn.wo)
        _replace(down, mlp.down)
    norms = getattr(attn.wq, "norm", None), getattr(attn.wk, "norm", None)  # of published models
    return Layer(
        n_heads=attn.n_heads,
        n_kv_heads=attn.n_kv_heads,
        attn_norm=norm_of(block.attn_norm),
        qkv=qkv,
        qkv_bias=None if attn.wq.bias is None else torch.cat([part.bias for part in three]),
        head_norms=(norm_of(norms[0]), norm_of(norms[1])) if all(norms) else None,
        out=out,
        mlp_norm=norm_of(block.mlp_norm),
        gate_up=gate_up,
        down=down,
    )


def _replace(matrix: Tensor, *parts: nn.Linear) -> None:
    """Let the weights of parts be views of one matrix that holds them one below the other."""
    rows = matrix.split([part.out_features for part in parts])
    for part, weight in zip(parts, rows, strict=True):
        part.weight = nn.Parameter(weight, requires_grad=False)


def _laid_out(weight: Tensor) -> Tensor:
    """Lay out a float32 matrix (out, in) for a CPU with its columns one after the other in memory: one
    row times it then adds up whole columns, a quarter faster than many short dot products. (Products of
    16-bit numbers have kernels of their own, which lose by it.)"""
    plain = weight.device.type != "cpu" or weight.dtype != torch.float32
    return weight if plain else weight.t().contiguous().t()
