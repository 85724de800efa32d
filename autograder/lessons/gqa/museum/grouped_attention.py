"""Known wrong answers to lesson 06: the numbers of `grouped_attention`."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right
from course.minigpt.gqa import repeat_kv

bug = MUSEUM.section("grouped_attention", check="grouped_equals_repeated")


@bug("head order", "PyTorch's ready-made attention for shared heads", kind="cheapest")
def ready_made_attention(q, k, v, mask=None):
    """Right numbers by an option that does what the lesson asks to write."""
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


@bug("head order", "a head number divided by the number of KV heads")
def grouped_by_division_by_the_kv_heads(q, k, v, mask=None):
    """h // G instead of h // (H // G): the number of heads for the size of a group."""
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    masks = [None] * H if mask is None else mask.expand(B, H, T, S).split(1, dim=1)
    outs = []
    for h in range(H):
        g = slice(min(h // G, G - 1), min(h // G, G - 1) + 1)  # "it must not run out of heads"
        outs.append(right.grouped_attention(q[:, h : h + 1], k[:, g], v[:, g], masks[h]))
    return torch.cat(outs, dim=1)


@bug("head order", "queries of a group that are averaged before they look")
def grouped_queries_averaged(q, k, v, mask=None):
    """Takes grouping for averaging: one query a group, and its result for all."""
    (B, H, T, _), n = q.shape, q.shape[1] // k.shape[1]
    mask = None if mask is None else mask.expand(B, H, T, k.shape[2])[:, ::n]
    mean = q.unflatten(1, (-1, n)).mean(dim=2)  # (B, G, T, D)
    return repeat_kv(right.grouped_attention(mean, k, v, mask), n)


@bug("mask", "attention that is causal where no mask was given")
def grouped_always_causal(q, k, v, mask=None):
    """Without a mask it puts in a causal one, which nobody asked for."""
    T, S = q.shape[2], k.shape[2]
    if mask is None:
        mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    return right.grouped_attention(q, k, v, mask)


@bug("form", "float32 outputs, whatever type was given", kind="dtype")
def grouped_into_float32(q, k, v, mask=None):
    """torch.zeros() without a dtype: float32, and the outputs are turned into it."""
    out = torch.zeros(q.shape)
    out[:] = right.grouped_attention(q, k, v, mask)
    return out


OUTPUTS = {}


@bug("state", "results that all lie in the same memory", kind="results")
def grouped_into_the_same_memory(q, k, v, mask=None):
    """Memory for the output is made once for each shape; the next call writes over it."""
    out = OUTPUTS.setdefault((q.shape, q.dtype), torch.empty(q.shape, dtype=q.dtype))
    return out.copy_(right.grouped_attention(q, k, v, mask))
