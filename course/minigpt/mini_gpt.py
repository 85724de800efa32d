"""Lesson 01: A mini-GPT that talks.

Built from solutions/01-mini-gpt/mini_gpt.py by `make build`: change it there.
"""

import math

import torch
from torch import Tensor

from course.model.layers import Attention


def greedy_next(logits: Tensor) -> Tensor:
    """The likeliest next token of each row: logits (B, V) -> (B,) int64.

    Raises:
        ValueError: logits of another shape.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")
    return logits.argmax(dim=-1)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut each token's vector into heads: x (B, T, n_heads * D) -> (B, n_heads, T, D)."""
    B, T, width = x.shape
    x = x.view(B, T, n_heads, width // n_heads)  # (B, T, H, D)
    return x.transpose(1, 2)  # (B, H, T, D)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads of each token side by side again: x (B, H, T, D) -> (B, T, H * D)."""
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)  # (B, T, H, D) -> (B, T, H * D)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in which token t sees tokens 0 … t.

    Args:
        q: queries (B, H, T, D).
        k, v: keys and values (B, G, T, D); query head h reads KV head h // (H // G).

    Returns:
        (B, H, T, D).
    """
    H, T, D = q.shape[1:]
    group = H // k.shape[1]  # query heads that read the same KV head
    k = k.repeat_interleave(group, dim=1)  # (B, G, T, D) -> (B, H, T, D)
    v = v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, T): one row a query
    visible = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(dim=-1) @ v  # (B, H, T, D)


def attention_layer(attn: Attention, x: Tensor, positions: Tensor) -> Tensor:
    """One attention layer, with no cache.

    Args:
        attn: its matrices wq, wk, wv, wo, its sizes n_heads and n_kv_heads, and
            rotate(heads, positions), which turns (B, H, T, D) or (B, G, T, D).
        x: (B, T, C).
        positions: (T,) int64, the place of each token in its text.

    Returns:
        (B, T, C).
    """
    q = split_heads(attn.wq(x), attn.n_heads)  # (B, H, T, D)
    k = split_heads(attn.wk(x), attn.n_kv_heads)  # (B, G, T, D)
    v = split_heads(attn.wv(x), attn.n_kv_heads)  # (B, G, T, D)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))  # (B, T, C)


def sample_next(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw the next token of each row from softmax(logits / temperature): (B, V) -> (B,) int64.

    Args:
        temperature: above 0; small is nearly greedy, 1 is what the model learned.
        top_k: draw only among the top_k likeliest tokens, 1 … V; None is all of them. Where
            tokens tie for the last place, keep exactly top_k or all that tie, as you like.
        generator: where the random numbers come from, so that a draw can be repeated; each call
            takes the next ones.

    Raises:
        ValueError: logits of another shape, or a temperature or top_k out of range.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")
    V = logits.shape[-1]
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; see greedy_next")
    if top_k is not None and not 1 <= top_k <= V:
        raise ValueError(f"top_k must lie in 1 … {V}, got {top_k}")
    scores, tokens = logits.topk(V if top_k is None else top_k, dim=-1)  # (B, K) each
    weights = (scores / temperature).softmax(dim=-1)
    place = torch.multinomial(weights, 1, generator=generator)  # (B, 1), in 0 … K-1
    return tokens.gather(-1, place).squeeze(-1)  # (B,)
