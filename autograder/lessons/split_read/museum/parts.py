"""Known wrong answers to lesson 09: the sums of one part."""

from __future__ import annotations

import torch

from autograder.lessons.split_read.museum import MUSEUM
from course.given.parts import Part
from course.minigpt import split_read as right

SCALE = " / math.sqrt(D)"
SAFE = "(scores - top.clamp_min(torch.finfo(top.dtype).min)).exp()"
ROWS = "q.reshape(B, G, -1, D)"
LAST = "Part(out, top, weights.sum(dim=-1, keepdim=True))"

bug, patch = MUSEUM.section("attend_part", check="parts_say_their_sums")

patch(
    "part_counted_from_zero",
    "softmax",
    "weights that are counted from 0 and not from the largest score",
    "e to the power of the scores as they are, and a top of 0: the maximum cancels out, on paper.",
    (
        "scores.amax(dim=-1, keepdim=True)",
        "torch.where(scores.amax(dim=-1, keepdim=True) > -math.inf, 0.0, -math.inf)",
    ),
)
patch(
    "part_already_divided",
    "softmax",
    "values that are divided by the total already",
    "Attention is a mean, so out is made one: merging then weighs means, not sums.",
    (
        LAST,
        "Part(out / weights.sum(dim=-1, keepdim=True).clamp_min(1), top, weights.sum(-1, True))",
    ),
)
patch(
    "part_with_one_top_for_all_queries",
    "softmax",
    "one top for all queries of a head",
    "The largest score of the whole matrix, instead of each row's.",
    (
        "scores.amax(dim=-1, keepdim=True)",
        "scores.amax(dim=(-2, -1), keepdim=True).expand(-1, -1, T, -1)",
    ),
)
patch(
    "part_with_one_top_for_the_group",
    "softmax",
    "one top for all heads",
    "amax over heads as well: the numbers cancel out in the end, unless heads lie far apart.",
    (
        "scores.amax(dim=-1, keepdim=True)",
        "scores.amax(dim=(1, -1), keepdim=True).expand(-1, H, -1, -1)",
    ),
)
patch(
    "part_minus_infinity_from_itself",
    "softmax",
    "minus infinity that is subtracted from itself",
    "A query that sees nothing here has top -inf, and -inf - -inf is NaN.",
    (SAFE, "(scores - top).exp()"),
)
patch(
    "part_blind_query_sees_all",
    "mask",
    "hidden keys that all get a weight where a query sees none",
    "The lowest number of the type for -inf: where all scores are that, each is the top.",
    ("-math.inf", "torch.finfo(scores.dtype).min"),
)
patch(
    "part_blind_query_with_top_zero",
    "softmax",
    "top 0 for a query that sees nothing",
    "nan_to_num on the top, and what was cured is returned: merged, 0 beats a top below it.",
    ("    weights = ", "    top = top.nan_to_num(neginf=0.0)\n    weights = "),
)
patch(
    "part_without_scale",
    "softmax",
    "scores that are not divided by the root of the width",
    "The scale is forgotten: lesson 06's loop had it elsewhere.",
    (SCALE, ""),
)
patch(
    "part_scaled_by_the_group",
    "softmax",
    "scores divided by the root of a group's width",
    "A group is taken for one wide head.",
    ("math.sqrt(D)", "math.sqrt(H // G * D)"),
)
patch(
    "part_scaled_by_the_width",
    "softmax",
    "scores divided by the width of a head, not by its root",
    "The root is forgotten.",
    ("math.sqrt(D)", "D"),
)
patch(
    "part_heads_tiled",
    "head order",
    "query heads that take the KV heads in turns",
    "H is cut into (H // G, G): head h reads KV head h % G.",
    (ROWS, "q.reshape(B, H // G, G, T, D).transpose(1, 2).reshape(B, G, -1, D)"),
    (
        ".view(B, H, T, -1)",
        ".view(B, G, H // G, T, k.shape[2]).transpose(1, 2).reshape(B, H, T, -1)",
    ),
    (
        "(weights.view(B, G, H // G * T, -1) @ v).view(B, H, T, D)",
        "(weights.view(B, H // G, G, T, -1).transpose(1, 2).reshape(B, G, H // G * T, -1) @ v).view("
        "B, G, H // G, T, D).transpose(1, 2).reshape(B, H, T, D)",
    ),
)
patch(
    "part_with_tokens_before_heads",
    "head order",
    "queries that are stacked token by token, and taken apart head by head",
    "transpose(1, 2) before the reshape: rows of other heads and tokens.",
    (ROWS, "q.transpose(1, 2).reshape(B, G, -1, D)"),
)
patch(
    "part_total_without_the_mask",
    "mask",
    "hidden keys that count in the total",
    "The mask is put on for the values, and the total sums up all weights.",
    ("    if mask is not None:\n", "    open_scores = scores\n    if mask is not None:\n"),
    (
        LAST,
        "Part(out, top, (open_scores - top.clamp_min(-1e30)).exp().sum(dim=-1, keepdim=True))",
    ),
)
patch(
    "part_with_the_mask_upside_down",
    "mask",
    "a mask that is read upside down",
    "masked_fill hides where it is True, and so does the mask, here.",
    ("~mask", "mask"),
)
patch(
    "part_counts_keys",
    "wiring",
    "the number of keys in the place of the sum of their weights",
    "A part of 5 keys gets total 5.",
    (LAST, "Part(out, top, torch.full_like(top, k.shape[2]))"),
)
patch(
    "part_of_keys",
    "wiring",
    "sums that are made of keys",
    "k for v in the last product.",
    ("-1) @ v)", "-1) @ k)"),
)


@bug("form", "float32 sums, whatever type was given", kind="dtype")
def part_in_float32(q, k, v, mask=None):
    """Room for the sums is made without a dtype."""
    return Part(*(x.float() for x in right.attend_part(q, k, v, mask)))


patch(
    "part_by_a_view",
    "form",
    "queries that must lie in memory in one order",
    "view() joins heads and tokens of queries that lie in another order.",
    (ROWS, "q.view(B, G, -1, D)"),
    kind="layout",
)
patch(
    "part_scales_the_queries_given",
    "state",
    "queries that are scaled where they lie",
    "q /= saves a line; the next part reads smaller queries.",
    ("    rows = q", "    q /= math.sqrt(D)\n    rows = q"),
    (SCALE, ""),
    kind="arguments",
)
patch(
    "part_of_the_first_row",
    "wiring",
    "rows that all read the keys of the first one",
    "k[0] and v[0]: tried with a batch of one.",
    ("    rows = q", "    k, v = k[:1], v[:1]\n    rows = q"),
    kind="batch",
)
patch(
    "part_without_axes_of_one",
    "form",
    "tops and totals that have lost an axis",
    "amax and sum without keepdim.",
    ("scores.amax(dim=-1, keepdim=True)", "scores.amax(dim=-1)"),
    ("top.clamp_min(torch.finfo(top.dtype).min)", "top.clamp_min(-1e30)[..., None]"),
    ("weights.sum(dim=-1, keepdim=True)", "weights.sum(dim=-1)"),
    kind="sizes",
)

bug, patch = MUSEUM.section("attend_part", check="far_apart_scores")

patch(
    "part_subtracts_too_late",
    "softmax",
    "weights from which the maximum is divided out afterwards",
    "exp(score) / exp(top) is exp(score - top) on paper; in float32 it is infinity by infinity.",
    (SAFE, "scores.exp() / top.clamp_min(-80).exp()"),
)
patch(
    "part_clamps_its_scores",
    "softmax",
    "scores that are cut off so that nothing overflows",
    "clamp(max=80) stops the overflow, and makes all large scores the same.",
    (
        "    top = scores.amax(dim=-1, keepdim=True)",
        "    scores = scores.clamp(max=80)\n    top = scores.amax(dim=-1, keepdim=True)",
    ),
)

bug, patch = MUSEUM.section("attend_part", check="parts_say_their_sums")

patch(
    "part_repeats_its_keys",
    "cost",
    "keys and values that are written out for every query head",
    "lesson 06's repeat_kv, part by part: all keys are copied all the same.",
    (
        "    (B, H, T, D), G = q.shape, k.shape[1]",
        "    n = q.shape[1] // k.shape[1]\n"
        "    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)\n"
        "    (B, H, T, D), G = q.shape, k.shape[1]",
    ),
    kind="cost",
)
patch(
    "part_converts_its_keys",
    "cost",
    "keys and values that are converted to another type before they are read",
    "float64 for safety: every key is written once more, twice as wide.",
    (
        "    (B, H, T, D), G = q.shape, k.shape[1]",
        "    kind, q, k, v = q.dtype, q.double(), k.double(), v.double()\n"
        "    (B, H, T, D), G = q.shape, k.shape[1]",
    ),
    (
        "    return Part(out, top, weights.sum(dim=-1, keepdim=True))",
        "    return Part(*(x.to(kind) for x in (out, top, weights.sum(-1, True))))",
    ),
    kind="cost",
)


@bug("cost", "keys that are made contiguous before they are read", kind="cost")
def part_makes_keys_contiguous(q, k, v, mask=None):
    """contiguous(), in case a view() complains: each part is copied out of the cache."""
    return right.attend_part(q, k.clone(memory_format=torch.contiguous_format), v.clone(), mask)
