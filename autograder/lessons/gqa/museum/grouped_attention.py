"""Known wrong answers to lesson 06: the numbers of `grouped_attention`."""

from __future__ import annotations

import torch

from autograder.lessons.gqa.museum import MUSEUM
from course.minigpt import gqa as right
from course.minigpt.gqa import repeat_kv

SWAPPED = ".transpose(1, 2).reshape"

bug, patch = MUSEUM.section("grouped_attention", check="grouped_equals_repeated")

patch(
    "grouped_by_tiling",
    "head order",
    "query heads that take the KV heads in turns",
    "H is cut into (H // G, G): head h reads KV head h % G. Cached equals uncached all the same.",
    ("q.reshape", f"q.reshape(B, H // G, G, T, D){SWAPPED}"),
    ("scores.view", f"scores.view(B, G, H // G, T, S){SWAPPED}"),
    ("softmax(dim=-1).view", f"softmax(dim=-1).view(B, H // G, G, T, S){SWAPPED}"),
    ("(shares @ v).view", f"(shares @ v).view(B, G, H // G, T, D){SWAPPED}"),
)


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


patch(
    "grouped_with_the_axes_swapped_back",
    "head order",
    "the right outputs, handed to other heads",
    "Group and head change places on the way back, and the reshape does not mind.",
    ("(shares @ v).view", f"(shares @ v).view(B, G, H // G, T, D){SWAPPED}"),
)
patch(
    "grouped_scaled_by_the_model",
    "softmax",
    "scores divided by the root of the width of all heads together",
    "The width of the model under the root, not that of a head.",
    ("math.sqrt(D)", "math.sqrt(H * D)"),
)
patch(
    "grouped_scaled_by_the_group",
    "softmax",
    "scores divided by the root of a group's width",
    "A group is taken for one wide head: its width goes under the root.",
    ("math.sqrt(D)", "math.sqrt(H // G * D)"),
)
patch(
    "grouped_without_scale",
    "softmax",
    "scores that go unscaled into the softmax",
    "The scale is forgotten.",
    (" / math.sqrt(D)", ""),
)


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


patch(
    "grouped_softmax_over_the_group",
    "softmax",
    "weights that add up over the queries of a group",
    "Softmax over the stacked queries instead of the keys.",
    ("softmax(dim=-1).view(B, G, H // G * T, S)", "view(B, G, H // G * T, S).softmax(dim=2)"),
)

patch(
    "grouped_with_queries_token_by_token",
    "head order",
    "queries that are stacked token by token, and taken apart head by head",
    "transpose(1, 2) before the reshape, as merge_heads does it: rows of other heads and tokens.",
    ("q.reshape", "q.transpose(1, 2).reshape"),
)
patch(
    "grouped_with_tokens_before_heads_in_a_group",
    "head order",
    "queries of a group that are stacked token by token, and taken apart head by head",
    "In a group tokens come first and heads second; nothing turns them back.",
    ("q.reshape", "q.reshape(B, G, H // G, T, D).transpose(2, 3).reshape"),
)
patch(
    "grouped_with_tokens_before_heads",
    "form",
    "outputs whose heads come after their tokens",
    "Turned for merge_heads, which turns by itself.",
    ("(shares @ v).view(B, H, T, D)", "(shares @ v).view(B, H, T, D).transpose(1, 2)"),
)
patch(
    "grouped_with_heads_merged",
    "form",
    "outputs whose heads are merged already",
    "One tensor (B, T, C), as the layer's last matrix wants it.",
    (
        "(shares @ v).view(B, H, T, D)",
        "(shares @ v).view(B, H, T, D).transpose(1, 2).reshape(B, T, H * D)",
    ),
)
patch(
    "grouped_without_the_way_back",
    "form",
    "outputs that are still stacked by groups",
    "The last view is forgotten.",
    ("(shares @ v).view(B, H, T, D)", "shares @ v"),
)
patch(
    "grouped_without_axes_of_one",
    "form",
    "outputs that have lost the axes of size 1",
    "squeeze() at the end, because one query has one output.",
    ("(shares @ v).view(B, H, T, D)", "(shares @ v).view(B, H, T, D).squeeze()"),
    kind="batch",
)
patch(
    "grouped_scaled_by_the_width",
    "softmax",
    "scores divided by the width of a head, not by its root",
    "The root is forgotten.",
    ("math.sqrt(D)", "D"),
)
patch(
    "grouped_scaled_by_the_keys",
    "softmax",
    "scores divided by the root of the number of keys",
    "The wrong letter under the root.",
    ("math.sqrt(D)", "math.sqrt(S)"),
)
patch(
    "grouped_multiplied_by_the_root",
    "softmax",
    "scores multiplied by the root of the width, not divided by it",
    "* for /.",
    ("/ math.sqrt(D)", "* math.sqrt(D)"),
)
patch(
    "grouped_without_softmax",
    "softmax",
    "scores that are taken for weights",
    "The softmax is forgotten.",
    ("scores.softmax(dim=-1)", "scores"),
)
patch(
    "grouped_softmax_over_the_queries",
    "softmax",
    "weights that add up over the queries of a head",
    "dim=-2 for dim=-1.",
    ("softmax(dim=-1)", "softmax(dim=-2)"),
)
patch(
    "grouped_softmax_over_the_heads",
    "softmax",
    "weights that add up over the heads",
    "dim=1 for dim=-1.",
    ("softmax(dim=-1)", "softmax(dim=1)"),
)
patch(
    "grouped_reads_keys_for_values",
    "wiring",
    "outputs that are made of keys",
    "k for v in the last product.",
    ("shares @ v", "shares @ k"),
)
patch(
    "grouped_by_the_first_row",
    "wiring",
    "rows that all read the keys and values of the first one",
    "k[0] and v[0]: tried with a batch of one.",
    ("rows = q", "k, v = k[:1], v[:1]\n    rows = q"),
    kind="batch",
)
patch(
    "grouped_over_the_last_thousand_keys",
    "capacity",
    "attention over the last 1,024 keys",
    "As many as max_seq_len once was.",
    ("(G, S) = q.shape, k.shape[1:3]", "k, v = q.shape, k[:, :, -1024:], v[:, :, -1024:]"),
    (
        "    rows = q",
        "    G, S = k.shape[1:3]\n    mask = None if mask is None else mask[..., -S:]\n    rows = q",
    ),
    kind="sizes",
)
patch(
    "grouped_with_one_key_tiled",
    "head order",
    "one key for which values are handed out in turns",
    "One key has share 1, so values are only repeated: by repeat(), which tiles.",
    ("    rows = q", "    if S == 1:\n        return v.repeat(1, H // G, T, 1)\n    rows = q"),
    kind="sizes",
)


@bug("form", "float32 outputs, whatever type was given", kind="dtype")
def grouped_into_float32(q, k, v, mask=None):
    """torch.zeros() without a dtype: float32, and the outputs are turned into it."""
    out = torch.zeros(q.shape)
    out[:] = right.grouped_attention(q, k, v, mask)
    return out


patch(
    "grouped_softmax_in_float32",
    "form",
    "weights in float32 beside values of another type",
    "softmax(dtype=float32), as models do it, without the way back.",
    ("scores.softmax(dim=-1)", "scores.float().softmax(dim=-1)"),
    kind="dtype",
)
patch(
    "grouped_by_a_view",
    "form",
    "queries that must lie in memory in one order",
    "view() joins heads and tokens of q, which split_heads left in another order.",
    ("q.reshape", "q.view"),
    kind="layout",
)
patch(
    "grouped_scales_the_queries_given",
    "state",
    "queries that are scaled where they lie",
    "q /= saves a line, and changes the caller's queries.",
    ("rows = q", "q /= math.sqrt(D)\n    rows = q"),
    ("k.transpose(-2, -1) / math.sqrt(D)", "k.transpose(-2, -1)"),
    kind="arguments",
)
OUTPUTS = {}


@bug("state", "results that all lie in the same memory", kind="results")
def grouped_into_the_same_memory(q, k, v, mask=None):
    """Memory for the output is made once for each shape; the next call writes over it."""
    out = OUTPUTS.setdefault((q.shape, q.dtype), torch.empty(q.shape, dtype=q.dtype))
    return out.copy_(right.grouped_attention(q, k, v, mask))


patch(
    "grouped_scales_the_keys_given",
    "state",
    "keys that are scaled where they lie, in the cache",
    "k.div_() saves a line; at the next step the same keys are scaled again.",
    ("rows = q", "k.div_(math.sqrt(D))\n    rows = q"),
    ("k.transpose(-2, -1) / math.sqrt(D)", "k.transpose(-2, -1)"),
    kind="arguments",
)
patch(
    "grouped_on_the_first_kv_head",
    "head order",
    "query heads that all take the keys of the first KV head",
    "k[:, :1]: tried with one KV head, and the values are shared rightly.",
    ("rows @ k", "rows @ k[:, :1]"),
)
patch(
    "grouped_token_by_token_throughout",
    "head order",
    "queries that are stacked and taken apart token by token, so that groups mix heads",
    "Turned by transpose(1, 2) before the reshape and after it: heads of one group are not together.",
    ("q.reshape", "q.transpose(1, 2).reshape"),
    ("(shares @ v).view(B, H, T, D)", "(shares @ v).reshape(B, T, H, D).transpose(1, 2)"),
)
patch(
    "grouped_with_heads_taken_for_tokens",
    "head order",
    "queries whose heads and tokens have changed names",
    "H and T stand next to each other in memory; q is cut as if T came first in a group.",
    ("q.reshape", "q.reshape(B, G, T, H // G, D).transpose(2, 3).reshape"),
)
patch(
    "grouped_by_exponentials_as_they_are",
    "softmax",
    "exponentials of scores that are as large as they come",
    "exp() and a sum by hand, and no maximum is taken off: from 89 on float32 has no such number.",
    ("scores.softmax(dim=-1)", "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))"),
    kind="sizes",
)
