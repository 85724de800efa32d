"""Known wrong answers to lesson 06."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.minigpt import gqa as right
from course.minigpt.gqa import repeat_kv

MUSEUM = Museum("gqa")

# --- repeat_kv -----------------------------------------------------------------------------------

bug, patch = MUSEUM.section("repeat_kv", check="heads_stand_in_a_row")

patch(
    "repeat_that_tiles",
    "head order",
    "heads that are tiled, all of them before any comes again",
    "repeat() for repeat_interleave(): a b a b. Prefill and decode do it alike, so cached equals "
    "uncached, and only who knows the order sees it.",
    ("repeat_interleave(n_rep, dim=1)", "repeat(1, n_rep, 1, 1)"),
)
patch(
    "repeat_along_the_sequence",
    "head order",
    "tokens that are repeated where heads should be",
    "dim=2 for dim=1: every token comes n times, and no head does.",
    ("dim=1", "dim=2"),
)
patch(
    "repeat_by_an_odd_reshape",
    "head order",
    "copies that stand behind each token, cut into heads afterwards",
    "The new axis stands behind the tokens, and the reshape that follows fits all the same.",
    (
        "x.repeat_interleave(n_rep, dim=1)",
        "x[:, :, :, None].expand(-1, -1, -1, n_rep, -1).reshape(len(x), -1, *x.shape[2:])",
    ),
)
patch(
    "repeat_one_head_for_all",
    "head order",
    "one KV head that serves every query head",
    "Tried with one KV head only: the first serves everybody.",
    ("x.repeat_interleave(n_rep, dim=1)", "x[:, :1].expand(-1, x.shape[1] * n_rep, -1, -1)"),
)
patch(
    "repeat_with_an_axis_too_many",
    "form",
    "copies on an axis of their own",
    "expand without the reshape: five axes.",
    ("x.repeat_interleave(n_rep, dim=1)", "x[:, :, None].expand(-1, -1, n_rep, -1, -1)"),
)

# --- grouped_attention ---------------------------------------------------------------------------

SWAPPED = ".transpose(1, 2).reshape"
IF_MASKED = "    if mask is not None:\n"

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
    H, G = q.shape[1], k.shape[1]
    g = (torch.arange(H) // G).clamp(max=G - 1)  # "it must not run out of heads"
    return right.grouped_attention(q, k[:, g], v[:, g], mask)


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
    n = q.shape[1] // k.shape[1]
    if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:
        mask = mask[:, ::n]
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

bug, patch = MUSEUM.section("grouped_attention", check="masks_reach_every_head")


@bug("mask", "attention in which the mask hides nothing")
def grouped_without_mask(q, k, v, mask=None):
    """In decode everything is visible, so the mask is never used."""
    return right.grouped_attention(q, k, v)


patch(
    "grouped_with_the_mask_turned_round",
    "mask",
    "attention that hides what the mask shows",
    "masked_fill(mask) for masked_fill(~mask): what should be seen is hidden.",
    ("~mask", "mask"),
)
patch(
    "grouped_with_the_mask_on_group_rows",
    "mask",
    "a mask whose rows belong to other queries of the group",
    "The stacked queries are head by head, the mask's rows are laid token by token.",
    (
        IF_MASKED,
        IF_MASKED + "        mask = mask.expand(B, H, T, S).reshape(B, G, H // G, T, S)\n"
        "        mask = mask.transpose(2, 3).reshape(B, H, T, S)\n",
    ),
)
patch(
    "grouped_with_the_mask_of_the_first_row",
    "mask",
    "the mask of the first row for the whole batch",
    "A mask with a batch axis is cut down to its first row.",
    (IF_MASKED, IF_MASKED + "        mask = mask[0, 0] if mask.dim() == 4 else mask\n"),
)
patch(
    "grouped_with_zero_for_hidden",
    "mask",
    "hidden keys with a score of zero, which is still a share",
    "Scores are multiplied by the mask: a hidden key has score 0, and so a share.",
    ('scores.masked_fill(~mask, float("-inf"))', "scores * mask"),
)
patch(
    "grouped_with_a_mask_for_one_head_only",
    "mask",
    "one mask for all heads where each has its own",
    "Masks of single heads are put together, so each head sees what any may see.",
    (
        IF_MASKED,
        IF_MASKED + "        mask = mask.any(-3, keepdim=True) if mask.dim() == 4 else mask\n",
    ),
)

bug, patch = MUSEUM.section("grouped_attention", check="nothing_is_expanded")


@bug("cost", "attention that first writes each KV head out for all its query heads")
def grouped_by_repeating(q, k, v, mask=None):
    """repeat_kv, then attention: right numbers, and a copy of the cache at every step."""
    n = q.shape[1] // k.shape[1]
    return right.grouped_attention(q, repeat_kv(k, n), repeat_kv(v, n), mask)


patch(
    "grouped_by_broadcasting",
    "cost",
    "a product whose batch axes differ, for which the keys are written out",
    "A product whose batch axes differ: PyTorch writes the keys out, and the line does not say so.",
    ("q.reshape(B, G, H // G * T, D)", "q.reshape(B, G, H // G, T, D)"),
    ("rows @ k", "rows @ k[:, :, None]"),
    ("softmax(dim=-1).view(B, G, H // G * T, S)", "softmax(dim=-1).view(B, G, H // G, T, S)"),
    ("shares @ v", "shares @ v[:, :, None]"),
)
patch(
    "grouped_by_expanding_the_keys",
    "cost",
    "keys that are written out, and values that are not",
    "expand() costs nothing; the reshape behind it copies. Only the keys, but all of them.",
    ("rows @ k", "q @ k[:, :, None].expand(B, G, H // G, S, D).reshape(B, H, S, D)"),
)


@bug("cost", "keys and values written out for one row after another")
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


patch(
    "grouped_by_products_of_elements",
    "cost",
    "a tensor of all single products, before they are added up",
    "Every product of two numbers is written down before they are added up.",
    ("q.reshape(B, G, H // G * T, D)", "q.reshape(B, G, -1, 1, D) * k[:, :, None]"),
    ("rows @ k.transpose(-2, -1)", "rows.sum(dim=-1)"),
)

# --- mean_pool_kv_heads --------------------------------------------------------------------------

bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooled_heads_are_means")

patch(
    "pool_adjacent_features",
    "head order",
    "means over neighbouring features instead of neighbouring heads",
    "view(-1, n, C).mean(1): neighbouring rows are features, not heads.",
    ("view(n_kv_heads, -1, D, C)", "view(n_kv_heads * D, -1, C)"),
)
patch(
    "pool_strided_heads",
    "head order",
    "means over heads that are not neighbours",
    "view(n, G, D, C): heads g, g + G, g + 2 G … are averaged, which no new head serves.",
    ("view(n_kv_heads, -1, D, C)", "view(-1, n_kv_heads, D, C)"),
    ("dim=1", "dim=0"),
)
patch(
    "pool_all_heads_alike",
    "head order",
    "one and the same mean for every new head",
    "One mean over all heads, handed to every new one.",
    ("dim=1).reshape(n_kv_heads * D, C)", "dim=(0, 1)).repeat(n_kv_heads, 1)"),
)
patch(
    "pool_by_summing",
    "formula",
    "sums of heads",
    "sum() for mean(): scores become n times as sharp.",
    ("groups.mean", "groups.sum"),
)
patch(
    "pool_keeps_the_first",
    "head order",
    "the first head of each group, without the others",
    "The first head of each group stays, the others are forgotten.",
    ("groups.mean(dim=1)", "groups[:, 0]"),
)
patch(
    "pool_keeps_the_first_of_all",
    "head order",
    "as many heads as wanted, the first ones there were",
    "The first G heads stay, whichever groups there are.",
    ("groups.mean(dim=1).reshape(n_kv_heads * D, C)", "weight[: n_kv_heads * D].clone()"),
)
patch(
    "pool_columns",
    "form",
    "matrices that are pooled along the wrong axis",
    "A Linear's weight is (out, in), and the in-axis is pooled.",
    ("view(n_kv_heads, -1, D, C)", "view(len(weight), -1, config.n_kv_heads // n_kv_heads)"),
    ("dim=1).reshape(n_kv_heads * D, C)", "dim=2)"),
)
patch(
    "pool_keys_only",
    "wiring",
    "keys that are pooled and values that are not",
    "Values are forgotten.",
    ('("wk.weight", "wv.weight")', '"wk.weight"'),
)
patch(
    "pool_keeps_the_axis_of_heads",
    "form",
    "weights with an axis of heads, which no matrix has",
    "The reshape back to a matrix is forgotten.",
    (".reshape(n_kv_heads * D, C)", ""),
)
patch(
    "pool_counts_query_heads",
    "head order",
    "groups counted in query heads",
    "Groups of H // G: right from MHA, wrong where the model shares heads already.",
    ("view(n_kv_heads, -1, D, C)", "view(-1, config.n_heads // n_kv_heads, D, C)"),
    ("reshape(n_kv_heads * D, C)", "flatten(0, 1)"),
)

bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooling_keeps_the_rest")

patch(
    "pool_queries_too",
    "wiring",
    "a model whose queries are pooled as well",
    "wq looks like wk, and is pooled as well: the model has fewer query heads now.",
    ('"wv.weight")', '"wv.weight", "wq.weight")'),
)
patch(
    "pool_shrinks_the_output_too",
    "wiring",
    "a model whose output matrix is made smaller as well",
    "wo is made to fit fewer heads, though just as many arrive there.",
    (
        "    return pooled",
        '        if name.endswith("wo.weight"):\n'
        "            groups = weight.view(len(weight), n_kv_heads, -1, config.head_dim)\n"
        "            pooled[name] = groups.mean(dim=2).flatten(1)\n"
        "    return pooled",
    ),
)
patch(
    "pool_in_place",
    "state",
    "a parent whose weights are replaced by those of its child",
    "Writes into the dict that it was given: the parent is gone.",
    ("dict(state)", "state"),
)
patch(
    "pool_writes_into_the_old_heads",
    "state",
    "means that are written into the model that was handed in",
    "A mean is stored in a view of the old weight, for a moment.",
    (
        "pooled[name] = groups.mean(dim=1)",
        "groups[:, 0] = groups.mean(dim=1)\n            pooled[name] = groups[:, 0].clone()",
    ),
)
patch(
    "pool_leaves_out_the_rest",
    "form",
    "weights without those that are not pooled",
    "Only the pooled weights come back.",
    ("dict(state)", "{}"),
)
patch(
    "pool_in_double",
    "form",
    "weights of another type than those that were handed in",
    "Pooled in float64 for precision, and left there.",
    ("weight.view", "weight.double().view"),
)

# --- max_batch_that_fits -------------------------------------------------------------------------

FREE = "max(0, memory_bytes - weight_bytes)"

bug, patch = MUSEUM.section("max_batch_that_fits", check="batch_fills_the_memory")

patch(
    "batch_by_query_heads",
    "formula",
    "a cache of query heads",
    "The popular formula: query heads where KV heads are stored.",
    ("// one_sequence", "// (one_sequence // config.n_kv_heads * config.n_heads)"),
)
patch(
    "batch_of_keys_only",
    "formula",
    "a cache without its values",
    "Keys without values.",
    ("// one_sequence", "// (one_sequence // 2)"),
)
patch(
    "batch_of_one_layer",
    "formula",
    "the cache of one layer",
    "A cache is kept for every layer.",
    ("// one_sequence", "// (one_sequence // config.n_layers)"),
)
patch(
    "batch_in_binary_gigabytes",
    "formula",
    "a memory whose gigabytes have two sizes",
    "Divides by 10⁹ and multiplies by 2³⁰: seven percent that nobody has.",
    (FREE, "max(0, int(memory_bytes / 1e9 * 2**30) - weight_bytes)"),
)
patch(
    "batch_without_weights",
    "formula",
    "a memory without weights in it",
    "The weights are forgotten.",
    (FREE, "memory_bytes"),
)
patch(
    "batch_with_weights_for_each",
    "formula",
    "weights that are there once for each sequence",
    "Every sequence brings the weights along.",
    (f"{FREE} // one_sequence", "memory_bytes // (weight_bytes + one_sequence)"),
)
patch(
    "batch_in_16_bits_always",
    "formula",
    "a cache in 16 bits, whatever was asked",
    "16 bits, whatever was asked.",
    ("n_tokens, 1, bytes_per_element)", "n_tokens, 1)"),
)
patch(
    "batch_as_a_fraction",
    "form",
    "a part of a sequence",
    "/ for //: half a sequence, and less than none.",
    (f"{FREE} //", "(memory_bytes - weight_bytes) /"),
)
patch(
    "batch_rounded_up",
    "off by one",
    "a last sequence for which only a part of the room is left",
    "Rounded up, so that the last one does not fit.",
    (f"{FREE} // one_sequence", f"math.ceil({FREE} / one_sequence)"),
)

bug, patch = MUSEUM.section("max_batch_that_fits", check="edge_of_the_memory")

patch(
    "batch_below_zero",
    "capacity",
    "a number of sequences below zero",
    "Weights larger than the memory: a negative number of sequences.",
    (FREE, "(memory_bytes - weight_bytes)"),
)
patch(
    "batch_at_least_one",
    "capacity",
    "one sequence where there is no room for any",
    "There is always room for one, is there not?",
    (f"{FREE} // one_sequence", f"max(1, {FREE} // one_sequence)"),
)
patch(
    "batch_with_a_byte_to_spare",
    "off by one",
    "a memory that may never be quite full",
    "< for <=: what fits to the byte is refused.",
    (FREE, "max(0, memory_bytes - weight_bytes - 1)"),
)
patch(
    "batch_counted_past_the_end",
    "off by one",
    "a count that stops one sequence too late",
    "Counts on until the memory is full: the last one did not fit.",
    (
        f"return {FREE} // one_sequence",
        "n = 0\n    while weight_bytes + n * one_sequence < memory_bytes:\n        n += 1\n    return n",
    ),
)
patch(
    "batch_of_what_is_missing",
    "capacity",
    "room as large as what is missing",
    "abs() against negative numbers: what is missing counts as room.",
    (FREE, "abs(memory_bytes - weight_bytes)"),
)
