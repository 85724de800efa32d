"""Known wrong answers to lesson 06: copies in `grouped_attention`."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right
from course.minigpt.gqa import repeat_kv

bug = MUSEUM.section("grouped_attention", check="nothing_is_expanded")


@bug("cost", "attention that first writes each KV head out for all its query heads", kind="cost")
def grouped_by_repeating(q, k, v, mask=None):
    """repeat_kv, then attention: right numbers, and a copy of the cache at every step."""
    n = q.shape[1] // k.shape[1]
    return right.grouped_attention(q, repeat_kv(k, n), repeat_kv(v, n), mask)


@bug("cost", "expanded keys and values that a reshape writes out", kind="cost")
def grouped_by_expanding(q, k, v, mask=None):
    """expand() costs nothing, the reshape behind it copies keys and values."""
    (B, H, _, D), (G, S) = q.shape, k.shape[1:3]
    k, v = (x[:, :, None].expand(B, G, H // G, S, D).reshape(B, H, S, D) for x in (k, v))
    return right.grouped_attention(q, k, v, mask)


@bug("cost", "keys and values written out for one row after another", kind="cost")
def grouped_row_by_row_expanded(q, k, v, mask=None):
    """One text at a time, so that the copies stay small; together they are as large as ever."""
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    masks = [None] * B if mask is None else mask.expand(B, H, T, S).split(1)
    rows = zip(q.split(1), k.split(1), v.split(1), masks, strict=True)
    outs = [
        right.grouped_attention(q, repeat_kv(k, H // G), repeat_kv(v, H // G), mask)
        for q, k, v, mask in rows
    ]
    return torch.cat(outs)


@bug("cost", "KV heads that are picked out by a list of numbers, which copies them", kind="cost")
def grouped_by_picking_heads(q, k, v, mask=None):
    """k[:, heads] with a head number for every query head: an index makes a new tensor."""
    heads = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    return F.scaled_dot_product_attention(q, k[:, heads], v[:, heads], attn_mask=mask)


@bug("cost", "KV heads that are copied one by one, in a loop", kind="cost")
def grouped_by_cloning_heads(q, k, v, mask=None):
    """One head at a time, each made contiguous first: together it is the whole cache."""
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    n = H // G
    masks = None if mask is None else mask.expand(B, H, T, S)
    outs = []
    for g in range(G):
        own = None if masks is None else masks[:, g * n : g * n + n]
        keys, values = (x[:, g : g + 1].clone() for x in (k, v))
        outs.append(right.grouped_attention(q[:, g * n : g * n + n], keys, values, own))
    return torch.cat(outs, dim=1)


@bug("cost", "attention that leaves PyTorch, so that nobody can count", kind="cost")
def grouped_by_numpy(q, k, v, mask=None):
    """NumPy throughout, with keys repeated: right numbers, and a copy that no count sees."""
    n = q.shape[1] // k.shape[1]
    Q, K, V = (x.double().numpy() if x.dtype is torch.bfloat16 else x.numpy() for x in (q, k, v))
    K, V = K.repeat(n, axis=1), V.repeat(n, axis=1)
    scores = Q @ K.swapaxes(2, 3) / Q.shape[3] ** 0.5
    if mask is not None:
        scores = np.where(mask.numpy(), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=3, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=3, keepdims=True) @ V).to(q.dtype)


@bug("cost", "KV heads that are copied for each of their query heads, in a loop", kind="cost")
def grouped_by_cloning_for_each_query_head(q, k, v, mask=None):
    """One query head at a time, and its keys and values are made its own first."""
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    masks = None if mask is None else mask.expand(B, H, T, S)
    outs = []
    for h in range(H):
        keys, values = (x[:, h // (H // G)].clone().unsqueeze(1) for x in (k, v))
        own = None if masks is None else masks[:, h : h + 1]
        outs.append(right.grouped_attention(q[:, h : h + 1], keys, values, own))
    return torch.cat(outs, dim=1)


def repeated(q, k, v, mask):
    """Attend to KV heads that are written out for all query heads."""
    n = q.shape[1] // k.shape[1]
    return right.grouped_attention(q, repeat_kv(k, n), repeat_kv(v, n), mask)


@bug("cost", "KV heads that are written out where there are several new tokens", kind="sizes")
def grouped_by_repeating_in_prefill(q, k, v, mask=None):
    """Groups in decode, where it was counted; for T above 1 heads are repeated."""
    return (repeated if q.shape[2] > 1 else right.grouped_attention)(q, k, v, mask)


@bug("cost", "KV heads that are written out where there is a mask", kind="cost")
def grouped_by_repeating_under_a_mask(q, k, v, mask=None):
    """The mask is easier for heads of their own, so under a mask heads are repeated."""
    return (right.grouped_attention if mask is None else repeated)(q, k, v, mask)


@bug("cost", "KV heads that are written out while the cache is short", kind="sizes")
def grouped_by_repeating_a_short_cache(q, k, v, mask=None):
    """Below 100 keys a copy is cheap, one thinks."""
    return (repeated if k.shape[2] < 100 else right.grouped_attention)(q, k, v, mask)
