"""Rotate queries and keys by their tokens' positions.

Numbers i and i + D/2 of a head form a pair; at position p the pair is rotated by the angle
p · theta^(-2i/D). The product of a query at m and a key at n then depends on m − n alone, which is
why a key can be rotated once and stored. Source: Su et al. 2021 (RoFormer); the pairing is that of
Llama in `transformers`.
"""

import torch
from torch import Tensor


def rotary_table(max_seq_len: int, head_dim: int, theta: float) -> Tensor:
    """Tabulate the cosines and sines of every position, (2, max_seq_len, D), float32.

    A pair (x, y) becomes (x·cos − y·sin, y·cos + x·sin). The table holds that minus: the sines of the
    first half of the numbers are negated.
    """
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(max_seq_len, dtype=torch.float64), frequencies)  # (S, D/2)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)]).float()


def rotate(x: Tensor, positions: Tensor, table: Tensor) -> Tensor:
    """Rotate queries or keys by their positions.

    Args:
        x: (B, H, T, D) queries, or (B, G, T, D) keys.
        positions: (T,) int64, or (B, T) where rows have different positions.
        table: from `rotary_table`, (2, max_seq_len, D).

    Returns:
        A new tensor of x's shape and dtype.
    """
    cos, sin = table[:, positions].to(x.dtype).unbind()  # (T, D) or (B, T, D) each
    if positions.dim() == 2:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (B, 1, T, D)
    partners = x.roll(
        x.shape[-1] // 2, dims=-1
    )  # in the place of each number, the other of its pair
    return x * cos + partners * sin
