"""Right answers to lesson 06 in other styles: every check must pass them."""

from __future__ import annotations

import copy
import math
import re
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Variant
from course.minigpt.kv_cache import kv_cache_bytes
from course.model.bounds import check_between, check_grouped, check_heads, check_pooling


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


def batch_by_doubling(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, left, n = (
        kv_cache_bytes(config, n_tokens, 1, bytes_per_element),
        memory_bytes - weight_bytes,
        0,
    )
    for power in range(64, -1, -1):
        if (n + 2**power) * one <= left:
            n += 2**power
    return n


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
    device = state["embed.weight"].device
    average = torch.eye(n_kv_heads, device=device).repeat_interleave(n, dim=1) / n  # (G, old heads)
    average = torch.kron(average, torch.eye(D, device=device)).double()  # (G · D, old heads · D)
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


def repeat_as_models_do(x, n_rep):
    """One copy of each head is the heads themselves, as in published code."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x if n_rep == 1 else x[:, :, None].expand(B, G, n_rep, S, D).reshape(B, -1, S, D)


@torch.no_grad()
def grouped_with_the_lowest_score(q, k, v, mask=None):
    """Queries are scaled first; what is hidden gets the lowest number that its type has."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = ((q * D**-0.5).reshape(B, G, -1, D) @ k.mT).view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), torch.finfo(scores.dtype).min)
    return (F.softmax(scores, dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


def pool_a_copy(state, config, n_kv_heads):
    check_pooling(config, n_kv_heads)
    pooled = copy.deepcopy(OrderedDict(state))
    for name in (f"blocks.{i}.attn.w{x}.weight" for i in range(config.n_layers) for x in "kv"):
        heads = pooled[name].unflatten(0, (config.n_kv_heads, config.head_dim))
        pooled[name] = torch.stack([g.mean(dim=0) for g in heads.chunk(n_kv_heads)]).flatten(0, 1)
    return pooled


def batch_as_a_fraction(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, bytes_per_element=bytes_per_element)
    return max(0, math.floor(Fraction(memory_bytes - weight_bytes, one)))


def in_numpy(tensor):
    """NumPy has no bfloat16; float32 holds all of its numbers."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def repeat_by_numpy(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return torch.from_numpy(np.repeat(in_numpy(x), n_rep, axis=1)).to(x.dtype)


def grouped_with_the_log_of_the_mask(q, k, v, mask=None):
    """log(True) is 0 and log(False) −∞: the mask is added."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = torch.bmm(q.reshape(B * G, -1, D), k.flatten(0, 1).mT).view(B, H, T, S) / math.sqrt(D)
    if mask is not None:
        scores = scores + mask.to(scores.dtype).log()
    shares = scores.softmax(-1).view(B * G, -1, S)
    return torch.bmm(shares, v.flatten(0, 1)).view(B, H, T, D)


def pool_by_numpy(state, config, n_kv_heads):
    check_pooling(config, n_kv_heads)
    pooled = dict(state)
    for name in filter(re.compile(r"w[kv]\.weight$").search, state):
        heads = in_numpy(state[name]).reshape(n_kv_heads, -1, config.head_dim, config.d_model)
        means = torch.from_numpy(heads.mean(axis=1).reshape(-1, config.d_model))
        pooled[name] = means.to(state[name].dtype)
    return pooled


def batch_by_numpy(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    left = np.maximum(0, np.int64(memory_bytes - weight_bytes))
    return left // np.int64(kv_cache_bytes(config, n_tokens, 1, bytes_per_element))


def grouped_in_passing(q, k, v, mask=None):
    """Keys come 64 at a time, and no score is kept: the weights' sum is carried along."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D) / math.sqrt(D)
    hidden = None if mask is None else ~mask.expand(B, H, T, S).reshape(B, G, -1, S)
    top = rows.new_full((*rows.shape[:3], 1), torch.finfo(rows.dtype).min)
    total, out = torch.zeros_like(top), torch.zeros_like(rows)
    for start in range(0, S, 64):
        block = slice(start, start + 64)
        scores = rows @ k[:, :, block].mT
        if hidden is not None:
            scores = scores.masked_fill(hidden[..., block], -torch.inf)
        higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        weights, kept = (scores - higher).exp(), (top - higher).exp()
        total = total * kept + weights.sum(dim=-1, keepdim=True)
        out, top = out * kept + weights @ v[:, :, block], higher
    return (out / total).view(B, H, T, D)


def grouped_query_by_query(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    if T > 1:
        whole = None if mask is None else mask.expand(B, H, T, S)
        parts = (slice(t, t + 1) for t in range(T))
        alone = [
            grouped_query_by_query(q[:, :, t], k, v, None if whole is None else whole[:, :, t])
            for t in parts
        ]
        return torch.cat(alone, dim=2)
    scores = torch.matmul(q.reshape(B, G, -1, D), k.transpose(2, 3)).div_(math.sqrt(D))
    if mask is not None:
        scores.masked_fill_(~mask.expand(B, H, 1, S).reshape(B, G, -1, S), -math.inf)
    return torch.matmul(torch.softmax(scores, -1, out=scores), v).reshape(B, H, 1, D)


def _variant(name, *functions):
    asked = ("repeat_kv", "grouped_attention", "mean_pool_kv_heads", "max_batch_that_fits")
    return Variant(name, dict(zip(asked, functions, strict=True)))


VARIANTS = [
    _variant(
        "einsum", repeat_by_expanding, grouped_by_einsum, pool_head_by_head, batch_by_counting
    ),
    _variant(
        "stacked",
        repeat_by_stacking,
        grouped_by_stacked_queries,
        pool_by_striding,
        batch_by_doubling,
    ),
    _variant(
        "loops", repeat_head_by_head, grouped_head_by_head, pool_by_matrix, batch_by_remainder
    ),
    _variant(
        "published",
        repeat_as_models_do,
        grouped_with_the_lowest_score,
        pool_a_copy,
        batch_as_a_fraction,
    ),
    _variant(
        "numpy", repeat_by_numpy, grouped_with_the_log_of_the_mask, pool_by_numpy, batch_by_numpy
    ),
    Variant(
        "layer_by_layer",
        {
            "repeat_kv": repeat_by_index,
            "mean_pool_kv_heads": pool_layer_by_layer,
            "max_batch_that_fits": batch_by_hand,
        },
    ),
    Variant("double", {"grouped_attention": grouped_in_double}),
    Variant("in_passing", {"grouped_attention": grouped_in_passing}),
    Variant("query_by_query", {"grouped_attention": grouped_query_by_query}),
]
