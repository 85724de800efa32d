"""Right answers to lesson 06 in other styles: every check must pass them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.bounds import check_between, check_grouped, check_heads, check_pooling
from course.minigpt.kv_cache import kv_cache_bytes


def repeat_by_expanding(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, None].expand(B, G, n_rep, S, D).reshape(B, G * n_rep, S, D)


def grouped_by_einsum(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    grouped = q.view(B, G, H // G, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", grouped, k) * D**-0.5
    if mask is not None:
        allowed = mask.expand(B, H, T, S).reshape(B, G, H // G, T, S)
        scores = torch.where(allowed, scores, -torch.inf)
    out = torch.einsum("bgrts,bgsd->bgrtd", torch.softmax(scores, -1), v)
    return out.reshape(B, H, T, D)


def pool_head_by_head(state, config, n_kv_heads):
    check_pooling(config, n_kv_heads)
    n, pooled = config.n_kv_heads // n_kv_heads, {}
    for name, weight in state.items():
        pooled[name] = weight.clone()
        if name.split(".")[-2] in ("wk", "wv"):
            heads = weight.split(config.head_dim)
            means = [sum(heads[g * n : g * n + n]) / n for g in range(n_kv_heads)]
            pooled[name] = torch.cat(means)
    return pooled


def _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element):
    check_between("memory_bytes", memory_bytes, 1, 2**63)
    check_between("n_tokens", n_tokens, 1, 2**31)
    check_between("weight_bytes", weight_bytes, 0, 2**63)
    check_between("bytes_per_element", bytes_per_element, 1, 8)


def batch_by_counting(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + (n + 1) * one <= memory_bytes:
        n += 1
    return n


def repeat_by_index(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x[:, torch.arange(x.shape[1] * n_rep) // n_rep]


def grouped_by_pytorch(q, k, v, mask=None):
    """PyTorch's own; on a CPU its fused kernel reads KV heads where they lie."""
    check_grouped(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def pool_layer_by_layer(state, config, n_kv_heads):
    check_pooling(config, n_kv_heads)
    pooled = {**state}
    for layer in range(config.n_layers):
        for part in ("wk", "wv"):
            name = f"blocks.{layer}.attn.{part}.weight"
            heads = pooled[name].unflatten(0, (n_kv_heads, -1, config.head_dim))
            pooled[name] = heads.mean(1).flatten(0, 1)
    return pooled


def batch_by_hand(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    if memory_bytes <= weight_bytes:
        return 0
    numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim * n_tokens
    return (memory_bytes - weight_bytes) // (numbers * bytes_per_element)


def repeat_by_stacking(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return torch.stack([x] * n_rep, dim=2).flatten(1, 2)


def grouped_by_stacked_queries(q, k, v, mask=None):
    """PyTorch's attention on stacked queries, the mask stacked likewise."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    allowed = None if mask is None else mask.expand(B, H, T, S).reshape(B, G, -1, S)
    return F.scaled_dot_product_attention(q.reshape(B, G, -1, D), k, v, attn_mask=allowed).view_as(
        q
    )


def pool_by_striding(state, config, n_kv_heads):
    """Adds up the first heads of all groups, then the second ones, …"""
    check_pooling(config, n_kv_heads)
    pooled, n = dict(state), config.n_kv_heads // n_kv_heads
    for name, weight in state.items():
        if name.endswith(("wk.weight", "wv.weight")):
            heads = weight.reshape(config.n_kv_heads, config.head_dim, config.d_model)
            total = torch.zeros_like(heads[::n])
            for i in range(n):
                total += heads[i::n]
            pooled[name] = total.div_(n).reshape(-1, config.d_model)
    return pooled


def batch_as_a_float(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return float(max((memory_bytes - weight_bytes) // one, 0))


def repeat_head_by_head(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return torch.cat([head for head in x.split(1, dim=1) for _ in range(n_rep)], dim=1)


def grouped_head_by_head(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    allowed = None if mask is None else mask.expand(B, H, T, S)
    out = torch.empty_like(q)
    for h in range(H):
        scores = q[:, h] @ k[:, h // (H // G)].mT / math.sqrt(D)  # (B, T, S)
        if allowed is not None:
            scores[~allowed[:, h]] = -torch.inf
        out[:, h] = scores.softmax(-1) @ v[:, h // (H // G)]
    return out


def pool_by_matrix(state, config, n_kv_heads):
    """A matrix of averages from the left, in float64."""
    check_pooling(config, n_kv_heads)
    n, D = config.n_kv_heads // n_kv_heads, config.head_dim
    average = torch.eye(n_kv_heads).repeat_interleave(n, dim=1) / n  # (G, old heads)
    average = torch.kron(average, torch.eye(D)).double()  # (G · D, old heads · D)
    return {
        name: (average @ w.double()).to(w.dtype) if name.endswith(("wk.weight", "wv.weight")) else w
        for name, w in state.items()
    }


def batch_by_remainder(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    n, _ = divmod(
        memory_bytes - weight_bytes, kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    )
    return n if n > 0 else 0


def grouped_in_double(q, k, v, mask=None):
    """Each group by itself, scores in float64, softmax by hand."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    groups = []
    for queries, keys, values, g in zip(
        q.chunk(G, dim=1), k.unbind(1), v.unbind(1), range(G), strict=True
    ):
        rows = queries.flatten(1, 2)  # (B, H // G * T, D)
        scores = torch.bmm(rows, keys.mT).double() / D**0.5
        if mask is not None:
            own = mask.expand(B, H, T, S).chunk(G, dim=1)[g].flatten(1, 2)
            scores = scores.masked_fill(own.logical_not(), -1e300)
        scores -= scores.amax(dim=-1, keepdim=True)
        e = scores.exp_()
        groups.append((e / e.sum(-1, keepdim=True)).to(values.dtype) @ values)
    return torch.cat([g.view(B, H // G, T, D) for g in groups], dim=1)


def _variant(name, *functions):
    asked = ("repeat_kv", "grouped_attention", "mean_pool_kv_heads", "max_batch_that_fits")
    return Variant(name, dict(zip(asked, functions, strict=True)))


VARIANTS = [
    _variant(
        "einsum", repeat_by_expanding, grouped_by_einsum, pool_head_by_head, batch_by_counting
    ),
    _variant("pytorch", repeat_by_index, grouped_by_pytorch, pool_layer_by_layer, batch_by_hand),
    _variant(
        "stacked",
        repeat_by_stacking,
        grouped_by_stacked_queries,
        pool_by_striding,
        batch_as_a_float,
    ),
    _variant(
        "loops", repeat_head_by_head, grouped_head_by_head, pool_by_matrix, batch_by_remainder
    ),
    Variant("double", {"grouped_attention": grouped_in_double}),
]
