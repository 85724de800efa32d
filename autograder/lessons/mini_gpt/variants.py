"""Right answers to lesson 01 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from autograder.lessons.exhibits import Variant
from course.minigpt.mini_gpt import causal_attention, split_heads


def split_by_unflatten(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).movedim(-2, 1)


def merge_by_cat(x: Tensor) -> Tensor:
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def split_by_stack(x: Tensor, n_heads: int) -> Tensor:
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_by_permute(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1, 3).flatten(2)


def attention_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    B, H, T, D = q.shape
    G = k.shape[1]
    q = q.reshape(B, G, H // G, T, D)
    scores = torch.einsum("bgitd,bgsd->bgits", q, k) * D**-0.5
    scores = scores + torch.full((T, T), -1e9).triu(1)
    return torch.einsum("bgits,bgsd->bgitd", scores.softmax(-1), v).reshape(B, H, T, D)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def attention_by_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, *written_out(q, k, v), is_causal=True)


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def triangle(q: Tensor, diagonal: int = 0) -> Tensor:
    T = q.shape[2]
    return torch.ones(T, T, dtype=torch.bool).tril(diagonal)


def attention_in_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q.double(), k.double()).masked_fill(~triangle(q), float("-inf"))
    return (scores.softmax(-1) @ v.double()).to(q.dtype)


def attention_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    H, T, D = q.shape[1:]
    group = H // k.shape[1]
    out = torch.empty_like(q)
    for h in range(H):
        for t in range(T):
            keys, values = k[:, h // group, : t + 1], v[:, h // group, : t + 1]
            scores = (keys @ q[:, h, t, :, None]).squeeze(-1) / D**0.5  # (B, t + 1)
            out[:, h, t] = (scores.softmax(-1)[:, None] @ values).squeeze(1)
    return out


def attention_by_exponentials(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    weights = scores_of(q, k).exp() * triangle(q)
    return weights @ v / weights.sum(-1, keepdim=True)


def layer_in_two_steps(attn, x: Tensor, positions: Tensor) -> Tensor:
    B, T, _ = x.shape
    k, q, v = (
        F.linear(x, matrix.weight).reshape(B, T, -1, attn.head_dim).transpose(1, 2)
        for matrix in (attn.wk, attn.wq, attn.wv)
    )
    k = attn.rotate(k, positions)
    out = causal_attention(attn.rotate(q, positions), k, v)
    return F.linear(out.transpose(1, 2).flatten(2), attn.wo.weight)


def projected(attn, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        split_heads(attn.wq(x), attn.n_heads),
        split_heads(attn.wk(x), attn.n_kv_heads),
        split_heads(attn.wv(x), attn.n_kv_heads),
    )


def layer_head_by_head(attn, x: Tensor, positions: Tensor) -> Tensor:
    """From position 0 on, since only distances matter; each head goes through its part of wo."""
    q, k, v = projected(attn, x)
    positions = positions - positions[0]
    heads = causal_attention(attn.rotate(q, positions), attn.rotate(k, positions), v)
    parts = attn.wo.weight.split(attn.head_dim, dim=1)  # (C, D) each
    return sum(heads[:, h] @ part.T for h, part in enumerate(parts))


def greedy_by_topk(logits: Tensor) -> Tensor:
    if logits.ndim != 2:
        raise ValueError("one row of logits for each text, please")
    return logits.topk(1).indices[:, 0]


def check_shape(logits: Tensor) -> None:
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")


def greedy_by_max(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.max(dim=1).indices


def check_arguments(logits: Tensor, temperature: float, top_k: int | None) -> None:
    check_shape(logits)
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if top_k is not None and not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"top_k must lie in 1 … {logits.shape[1]}, got {top_k}")


def kept(logits: Tensor, top_k: int | None) -> Tensor:
    """Logits with -inf for every token below the top_k-th."""
    if top_k is None:
        return logits
    edge = logits.topk(top_k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < edge, float("-inf"))


def drawn(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.multinomial(weights, 1, generator=generator).squeeze(-1)


def sample_with_ties_kept(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), generator)


def sample_by_gumbel(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    u = torch.rand(logits.shape, generator=generator).clamp(1e-7, 1 - 1e-7)
    return (kept(logits, top_k) / temperature - (-u.log()).log()).argmax(-1)


def sample_by_inverse_cdf(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits.double(), top_k) / temperature).softmax(-1)
    u = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)
    return (
        torch.searchsorted(weights.cumsum(-1), u, right=True)
        .squeeze(-1)
        .clamp(max=logits.shape[1] - 1)
    )


VARIANTS = [
    Variant("unflatten_and_cat", {"split_heads": split_by_unflatten, "merge_heads": merge_by_cat}),
    Variant("stack_and_permute", {"split_heads": split_by_stack, "merge_heads": merge_by_permute}),
    Variant("einsum_with_additive_mask", {"causal_attention": attention_by_einsum}),
    Variant("sdpa", {"causal_attention": attention_by_sdpa}),
    Variant("float64_inside", {"causal_attention": attention_in_float64}),
    Variant("loops", {"causal_attention": attention_by_loops}),
    Variant("exponentials_masked", {"causal_attention": attention_by_exponentials}),
    Variant("layer_in_two_steps", {"attention_layer": layer_in_two_steps}),
    Variant("layer_head_by_head", {"attention_layer": layer_head_by_head}),
    Variant("greedy_by_topk", {"greedy_next": greedy_by_topk}),
    Variant("greedy_by_max", {"greedy_next": greedy_by_max}),
    Variant("ties_kept", {"sample_next": sample_with_ties_kept}),
    Variant("gumbel", {"sample_next": sample_by_gumbel}),
    Variant("inverse_cdf", {"sample_next": sample_by_inverse_cdf}),
]
