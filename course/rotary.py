"""Rotate queries and keys by their tokens' positions.

Numbers i and i + D/2 of a head form a pair; at position p the pair is turned by the angle
p · theta^(-2i/D). The product of a query at m and a key at n then depends on m − n alone, which is
why a key can be rotated once and stored. Source: Su et al. 2021 (RoFormer); the pairing is that of
Llama in `transformers`.
"""

import torch
from torch import Tensor


def rotary_table(max_seq_len: int, head_dim: int, theta: float) -> Tensor:
    """Tabulate cosines and sines of every position, (2, max_seq_len, D), float32."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(max_seq_len, dtype=torch.float64), frequencies)  # (S, D/2)
    angles = torch.cat([angles, angles], dim=-1)  # (S, D): both numbers of a pair turn alike
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, positions: Tensor, table: Tensor) -> Tensor:
    """Rotate queries or keys by their positions.

    Args:
        x: (B, H, T, D) queries, or (B, G, T, D) keys.
        positions: (T,) int64, or (B, T) where every row has positions of its own.
        table: from `rotary_table`, (2, max_seq_len, D).

    Returns:
        A new tensor of x's shape and dtype.
    """
    cos, sin = table[:, positions].to(x.dtype)  # (T, D) or (B, T, D) each
    if positions.dim() == 2:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (B, 1, T, D)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
