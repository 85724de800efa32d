"""Known wrong answers to lesson 06, and correct ones in other styles."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibit import Bug, Variant
from course.bounds import check_between, check_grouped, check_heads, check_pooling
from course.minigpt import gqa as reference
from course.minigpt.kv_cache import kv_cache_bytes

# --- repeat_kv -----------------------------------------------------------------------------------


def repeat_that_tiles(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x.repeat(1, n_rep, 1, 1)


def repeat_along_the_sequence(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x.repeat_interleave(n_rep, dim=2)


def repeat_by_an_odd_reshape(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, :, None].expand(B, G, S, n_rep, D).reshape(B, G * n_rep, S, D)


def repeat_one_head_for_all(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :1].expand(B, G * n_rep, S, D)


def repeat_with_an_axis_too_many(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, None].expand(B, G, n_rep, S, D)


# --- grouped_attention ---------------------------------------------------------------------------


def _grouped(q, k, v, mask, *, scale=None, causal=False):
    """The reference with some of its parts exchanged."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)  # (B, G, H // G * T, D)
    scores = (rows @ k.transpose(-2, -1) / (scale or math.sqrt(D))).view(B, H, T, S)
    if causal and mask is None:
        mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


def _repeated(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def grouped_by_tiling(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, H // G, G, T, D).transpose(1, 2).reshape(B, G, -1, D)
    scores = (rows @ k.transpose(-2, -1) / math.sqrt(D)).view(B, G, H // G, T, S)
    scores = scores.transpose(1, 2).reshape(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, H // G, G, T, S).transpose(1, 2).reshape(B, G, -1, S)
    out = (shares @ v).view(B, G, H // G, T, D).transpose(1, 2)
    return out.reshape(B, H, T, D)


def grouped_by_division_by_the_kv_heads(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    H, G = q.shape[1], k.shape[1]
    heads = []
    for h in range(H):
        g = min(h // G, G - 1)  # "it must not run out of heads"
        scores = q[:, h] @ k[:, g].transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, T, S)
        if mask is not None:
            shown = mask.expand(q.shape[0], H, q.shape[2], k.shape[2])[:, h]
            scores = scores.masked_fill(~shown, float("-inf"))
        heads.append(scores.softmax(dim=-1) @ v[:, g])
    return torch.stack(heads, dim=1)


def grouped_with_the_axes_swapped_back(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), G = q.shape, k.shape[1]
    out = _grouped(q, k, v, mask).view(B, G, H // G, T, D)
    return out.transpose(1, 2).reshape(B, H, T, D)


def grouped_scaled_by_the_model(q, k, v, mask=None):
    return _grouped(q, k, v, mask, scale=math.sqrt(q.shape[1] * q.shape[3]))


def grouped_scaled_by_the_group(q, k, v, mask=None):
    D, per_group = q.shape[3], q.shape[1] // k.shape[1]
    return _grouped(q, k, v, mask, scale=math.sqrt(D * per_group))


def grouped_without_scale(q, k, v, mask=None):
    return _grouped(q, k, v, mask, scale=1.0)


def grouped_queries_averaged(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), G = q.shape, k.shape[1]
    mean = q.view(B, G, H // G, T, D).mean(dim=2)  # (B, G, T, D)
    if mask is not None and mask.dim() == 4 and mask.shape[1] == H:
        mask = mask[:, :: H // G]
    out = F.scaled_dot_product_attention(mean, k, v, attn_mask=mask)
    return out.repeat_interleave(H // G, dim=1)


def grouped_always_causal(q, k, v, mask=None):
    return _grouped(q, k, v, mask, causal=True)


def grouped_softmax_over_the_group(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = (rows @ k.transpose(-2, -1) / math.sqrt(D)).view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.view(B, G, -1, S).softmax(dim=2)
    return (shares @ v).view(B, H, T, D)


def grouped_without_mask(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    return _grouped(q, k, v, None)


def grouped_with_the_mask_turned_round(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    return _grouped(q, k, v, None if mask is None else ~mask)


def grouped_with_the_mask_on_group_rows(q, k, v, mask=None):
    """The mask is cut for stacked queries as if their heads changed fastest."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = rows @ k.transpose(-2, -1) / math.sqrt(D)  # (B, G, H // G * T, S)
    if mask is not None:
        per_query = mask.expand(B, H, T, S).view(B, G, H // G, T, S) if mask.dim() == 4 else mask
        shown = per_query.expand(B, G, H // G, T, S).transpose(2, 3).reshape(B, G, -1, S)
        scores = scores.masked_fill(~shown, float("-inf"))
    return (scores.softmax(dim=-1) @ v).view(B, H, T, D)


def grouped_with_the_mask_of_the_first_row(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    if mask is not None and mask.dim() == 4:
        mask = mask[0, 0]
    return _grouped(q, k, v, mask)


def grouped_with_zero_for_hidden(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = (rows @ k.transpose(-2, -1) / math.sqrt(D)).view(B, H, T, S)
    if mask is not None:
        scores = scores * mask
    return (scores.softmax(dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


def grouped_with_a_mask_for_one_head_only(q, k, v, mask=None):
    """Works for (T, S) and is not asked about others: a head's own mask is taken for the batch's."""
    check_grouped(q, k, v, mask)
    if mask is not None and mask.dim() == 4:
        mask = mask.any(dim=1, keepdim=True)
    return _grouped(q, k, v, mask)


def grouped_by_repeating(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    per_group = q.shape[1] // k.shape[1]
    return _repeated(q, reference.repeat_kv(k, per_group), reference.repeat_kv(v, per_group), mask)


def grouped_by_broadcasting(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = q.view(B, G, H // G, T, D) @ k[:, :, None].transpose(-2, -1) / math.sqrt(D)
    scores = scores.view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, G, H // G, T, S)
    return (shares @ v[:, :, None]).view(B, H, T, D)


def grouped_by_expanding_the_keys(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    wide = k[:, :, None].expand(B, G, H // G, S, D).reshape(B, H, S, D)
    scores = q @ wide.transpose(-2, -1) / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1).reshape(B, G, -1, S) @ v).view(B, H, T, D)


def grouped_row_by_row_expanded(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    shown = None if mask is None else mask.expand(B, H, T, S)
    head_of = torch.arange(H) // (H // G)
    rows = [
        _repeated(q[b], k[b][head_of], v[b][head_of], None if shown is None else shown[b])
        for b in range(B)
    ]
    return torch.stack(rows)


def grouped_by_products_of_elements(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    pairs = q.view(B, G, H // G, T, 1, D) * k[:, :, None, None]  # (B, G, H // G, T, S, D)
    scores = pairs.sum(dim=-1).view(B, H, T, S) / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


# --- mean_pool_kv_heads --------------------------------------------------------------------------


def _pool(state, config, n_kv_heads, join, names=("wk.weight", "wv.weight")):
    """Every weight of those names becomes what `join` makes of it."""
    check_pooling(config, n_kv_heads)
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(names):
            pooled[name] = join(weight)
    return pooled


def _groups(weight, config, n_kv_heads):
    return weight.view(n_kv_heads, -1, config.head_dim, config.d_model)


def pool_adjacent_features(state, config, n_kv_heads):
    def join(weight):
        n = config.n_kv_heads // n_kv_heads
        return weight.view(-1, n, config.d_model).mean(dim=1)

    return _pool(state, config, n_kv_heads, join)


def pool_strided_heads(state, config, n_kv_heads):
    def join(weight):
        heads = weight.view(-1, n_kv_heads, config.head_dim, config.d_model)  # (n, G, D, C)
        return heads.mean(dim=0).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


def pool_all_heads_alike(state, config, n_kv_heads):
    def join(weight):
        mean = weight.view(-1, config.head_dim, config.d_model).mean(dim=0)  # (D, C)
        return mean.repeat(n_kv_heads, 1)

    return _pool(state, config, n_kv_heads, join)


def pool_by_summing(state, config, n_kv_heads):
    def join(weight):
        return _groups(weight, config, n_kv_heads).sum(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


def pool_keeps_the_first(state, config, n_kv_heads):
    def join(weight):
        return _groups(weight, config, n_kv_heads)[:, 0].reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


def pool_keeps_the_first_of_all(state, config, n_kv_heads):
    def join(weight):
        return weight[: n_kv_heads * config.head_dim].clone()

    return _pool(state, config, n_kv_heads, join)


def pool_columns(state, config, n_kv_heads):
    def join(weight):
        n = config.n_kv_heads // n_kv_heads
        return weight.view(len(weight), -1, n).mean(dim=2)

    return _pool(state, config, n_kv_heads, join)


def pool_keys_only(state, config, n_kv_heads):
    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join, names=("wk.weight",))


def pool_keeps_the_axis_of_heads(state, config, n_kv_heads):
    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1)

    return _pool(state, config, n_kv_heads, join)


def pool_counts_query_heads(state, config, n_kv_heads):
    """Groups of H // G heads, as if the model had a KV head for each query head."""

    def join(weight):
        n = config.n_heads // n_kv_heads
        heads = weight.view(-1, config.head_dim, config.d_model)  # (old heads, D, C)
        means = [heads[g * n : (g + 1) * n].mean(dim=0) for g in range(n_kv_heads)]
        return torch.cat(means)

    return _pool(state, config, n_kv_heads, join)


def pool_queries_too(state, config, n_kv_heads):
    def join(weight):
        heads = weight.view(-1, config.head_dim, config.d_model)
        return heads.view(n_kv_heads, -1, *heads.shape[1:]).mean(dim=1).flatten(0, 1)

    return _pool(state, config, n_kv_heads, join, names=("wk.weight", "wv.weight", "wq.weight"))


def pool_shrinks_the_output_too(state, config, n_kv_heads):
    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1).reshape(-1, config.d_model)

    pooled = _pool(state, config, n_kv_heads, join)
    for name, weight in state.items():
        if name.endswith("wo.weight"):
            n = config.n_heads // n_kv_heads
            pooled[name] = weight.view(len(weight), n_kv_heads, n, -1).mean(dim=2).flatten(1)
    return pooled


def pool_in_place(state, config, n_kv_heads):
    pooled = reference.mean_pool_kv_heads(state, config, n_kv_heads)
    state.update(pooled)
    return state


def pool_writes_into_the_old_heads(state, config, n_kv_heads):
    def join(weight):
        groups = _groups(weight, config, n_kv_heads)
        groups[:, 0] = groups.mean(dim=1)  # a view: the model's own weight
        return groups[:, 0].reshape(-1, config.d_model).clone()

    return _pool(state, config, n_kv_heads, join)


def pool_leaves_out_the_rest(state, config, n_kv_heads):
    pooled = reference.mean_pool_kv_heads(state, config, n_kv_heads)
    return {name: pooled[name] for name in pooled if ".wk." in name or ".wv." in name}


def pool_in_double(state, config, n_kv_heads):
    def join(weight):
        groups = _groups(weight.double(), config, n_kv_heads)
        return groups.mean(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


# --- max_batch_that_fits -------------------------------------------------------------------------


def _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element):
    check_between("memory_bytes", memory_bytes, 1, 2**63)
    check_between("n_tokens", n_tokens, 1, 2**31)
    check_between("weight_bytes", weight_bytes, 0, 2**63)
    check_between("bytes_per_element", bytes_per_element, 1, 8)


def batch_by_query_heads(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = 2 * config.n_layers * config.n_heads * config.head_dim * n_tokens * bytes_per_element
    return max(0, memory_bytes - weight_bytes) // one


def batch_of_keys_only(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element) // 2
    return max(0, memory_bytes - weight_bytes) // one


def batch_of_one_layer(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element) // config.n_layers
    return max(0, memory_bytes - weight_bytes) // one


def batch_in_binary_gigabytes(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    free = memory_bytes / 1e9 * 2**30 - weight_bytes
    return int(max(0, free) // one)


def batch_without_weights(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return memory_bytes // kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


def batch_with_weights_for_each(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return memory_bytes // (weight_bytes + one)


def batch_in_16_bits_always(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return max(0, memory_bytes - weight_bytes) // kv_cache_bytes(config, n_tokens)


def batch_as_a_fraction(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return (memory_bytes - weight_bytes) / one


def batch_rounded_up(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(0, math.ceil((memory_bytes - weight_bytes) / one))


def batch_below_zero(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return (memory_bytes - weight_bytes) // kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


def batch_at_least_one(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(1, (memory_bytes - weight_bytes) // one)


def batch_with_a_byte_to_spare(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + (n + 1) * one < memory_bytes:
        n += 1
    return n


def batch_counted_past_the_end(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + n * one < memory_bytes:
        n += 1
    return n


def batch_of_what_is_missing(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return abs(memory_bytes - weight_bytes) // one


def _bug(check, story, family, mistake, function):
    names = {"repeat": "repeat_kv", "grouped": "grouped_attention"}
    names |= {"pool": "mean_pool_kv_heads", "batch": "max_batch_that_fits"}
    name = function.__name__
    return Bug(name, story, f"gqa.{check}", family, mistake, {names[name.split("_")[0]]: function})


BUGS = [
    _bug(
        "heads_stand_in_a_row",
        "repeat() for repeat_interleave(): a b a b. Prefill and decode do it alike, so cached equals "
        "uncached, and only who knows the order sees it.",
        "head order",
        "heads that are tiled, all of them before any comes again",
        repeat_that_tiles,
    ),
    _bug(
        "heads_stand_in_a_row",
        "dim=2 for dim=1: every token comes n times, and no head does.",
        "head order",
        "tokens that are repeated where heads should be",
        repeat_along_the_sequence,
    ),
    _bug(
        "heads_stand_in_a_row",
        "The new axis stands behind the tokens, and the reshape that follows fits all the same.",
        "head order",
        "copies that stand behind each token, cut into heads afterwards",
        repeat_by_an_odd_reshape,
    ),
    _bug(
        "heads_stand_in_a_row",
        "Tried with one KV head only: the first serves everybody.",
        "head order",
        "one KV head that serves every query head",
        repeat_one_head_for_all,
    ),
    _bug(
        "heads_stand_in_a_row",
        "expand without the reshape: five axes.",
        "form",
        "copies on an axis of their own",
        repeat_with_an_axis_too_many,
    ),
    _bug(
        "grouped_equals_repeated",
        "H is cut into (H // G, G): head h reads KV head h % G. Cached equals uncached all the same.",
        "head order",
        "query heads that take the KV heads in turns",
        grouped_by_tiling,
    ),
    _bug(
        "grouped_equals_repeated",
        "h // G instead of h // (H // G): the number of heads for the size of a group.",
        "head order",
        "a head number divided by the number of KV heads",
        grouped_by_division_by_the_kv_heads,
    ),
    _bug(
        "grouped_equals_repeated",
        "Group and head change places on the way back, and the reshape does not mind.",
        "head order",
        "the right outputs, handed to other heads",
        grouped_with_the_axes_swapped_back,
    ),
    _bug(
        "grouped_equals_repeated",
        "The width of the model under the root, not that of a head.",
        "softmax",
        "scores divided by the root of the width of all heads together",
        grouped_scaled_by_the_model,
    ),
    _bug(
        "grouped_equals_repeated",
        "A group is taken for one wide head: its width goes under the root.",
        "softmax",
        "scores divided by the root of a group's width",
        grouped_scaled_by_the_group,
    ),
    _bug(
        "grouped_equals_repeated",
        "The scale is forgotten.",
        "softmax",
        "scores that go unscaled into the softmax",
        grouped_without_scale,
    ),
    _bug(
        "grouped_equals_repeated",
        "Takes grouping for averaging: one query a group, and its result for all.",
        "head order",
        "queries of a group that are averaged before they look",
        grouped_queries_averaged,
    ),
    _bug(
        "grouped_equals_repeated",
        "Without a mask it puts in a causal one, which nobody asked for.",
        "mask",
        "attention that is causal where no mask was given",
        grouped_always_causal,
    ),
    _bug(
        "grouped_equals_repeated",
        "Softmax over the stacked queries instead of the keys.",
        "softmax",
        "weights that add up over the queries of a group",
        grouped_softmax_over_the_group,
    ),
    _bug(
        "masks_reach_every_head",
        "In decode everything is visible, so the mask is never used.",
        "mask",
        "attention in which the mask hides nothing",
        grouped_without_mask,
    ),
    _bug(
        "masks_reach_every_head",
        "masked_fill(mask) for masked_fill(~mask): what should be seen is hidden.",
        "mask",
        "attention that hides what the mask shows",
        grouped_with_the_mask_turned_round,
    ),
    _bug(
        "masks_reach_every_head",
        "The stacked queries are head by head, the mask's rows are laid token by token.",
        "mask",
        "a mask whose rows belong to other queries of the group",
        grouped_with_the_mask_on_group_rows,
    ),
    _bug(
        "masks_reach_every_head",
        "A mask with a batch axis is cut down to its first row.",
        "mask",
        "the mask of the first row for the whole batch",
        grouped_with_the_mask_of_the_first_row,
    ),
    _bug(
        "masks_reach_every_head",
        "Scores are multiplied by the mask: a hidden key has score 0, and so a share.",
        "mask",
        "hidden keys with a score of zero, which is still a share",
        grouped_with_zero_for_hidden,
    ),
    _bug(
        "masks_reach_every_head",
        "Masks of single heads are put together, so each head sees what any may see.",
        "mask",
        "one mask for all heads where each has its own",
        grouped_with_a_mask_for_one_head_only,
    ),
    _bug(
        "nothing_is_expanded",
        "repeat_kv, then attention: right numbers, and a copy of the cache at every step.",
        "cost",
        "attention that first writes each KV head out for all its query heads",
        grouped_by_repeating,
    ),
    _bug(
        "nothing_is_expanded",
        "A product whose batch axes differ: PyTorch writes the keys out, and the line does not say so.",
        "cost",
        "a product whose batch axes differ, for which the keys are written out",
        grouped_by_broadcasting,
    ),
    _bug(
        "nothing_is_expanded",
        "expand() costs nothing; the reshape behind it copies. Only the keys, but all of them.",
        "cost",
        "keys that are written out, and values that are not",
        grouped_by_expanding_the_keys,
    ),
    _bug(
        "nothing_is_expanded",
        "One text at a time, so that the copies stay small; together they are as large as ever.",
        "cost",
        "keys and values written out for one row after another",
        grouped_row_by_row_expanded,
    ),
    _bug(
        "nothing_is_expanded",
        "Every product of two numbers is written down before they are added up.",
        "cost",
        "a tensor of all single products, before they are added up",
        grouped_by_products_of_elements,
    ),
    _bug(
        "pooled_heads_are_means",
        "view(-1, n, C).mean(1): neighbouring rows are features, not heads.",
        "head order",
        "means over neighbouring features instead of neighbouring heads",
        pool_adjacent_features,
    ),
    _bug(
        "pooled_heads_are_means",
        "view(n, G, D, C): heads g, g + G, g + 2 G … are averaged, which no new head serves.",
        "head order",
        "means over heads that are not neighbours",
        pool_strided_heads,
    ),
    _bug(
        "pooled_heads_are_means",
        "One mean over all heads, handed to every new one.",
        "head order",
        "one and the same mean for every new head",
        pool_all_heads_alike,
    ),
    _bug(
        "pooled_heads_are_means",
        "sum() for mean(): scores become n times as sharp.",
        "formula",
        "sums of heads",
        pool_by_summing,
    ),
    _bug(
        "pooled_heads_are_means",
        "The first head of each group stays, the others are forgotten.",
        "head order",
        "the first head of each group, without the others",
        pool_keeps_the_first,
    ),
    _bug(
        "pooled_heads_are_means",
        "The first G heads stay, whichever groups there are.",
        "head order",
        "as many heads as wanted, the first ones there were",
        pool_keeps_the_first_of_all,
    ),
    _bug(
        "pooled_heads_are_means",
        "A Linear's weight is (out, in), and the in-axis is pooled.",
        "form",
        "matrices that are pooled along the wrong axis",
        pool_columns,
    ),
    _bug(
        "pooled_heads_are_means",
        "Values are forgotten.",
        "wiring",
        "keys that are pooled and values that are not",
        pool_keys_only,
    ),
    _bug(
        "pooled_heads_are_means",
        "The reshape back to a matrix is forgotten.",
        "form",
        "weights with an axis of heads, which no matrix has",
        pool_keeps_the_axis_of_heads,
    ),
    _bug(
        "pooled_heads_are_means",
        "Groups of H // G: right from MHA, wrong where the model shares heads already.",
        "head order",
        "groups counted in query heads",
        pool_counts_query_heads,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "wq looks like wk, and is pooled as well: the model has fewer query heads now.",
        "wiring",
        "a model whose queries are pooled as well",
        pool_queries_too,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "wo is made to fit fewer heads, though just as many arrive there.",
        "wiring",
        "a model whose output matrix is made smaller as well",
        pool_shrinks_the_output_too,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "Writes into the dict that it was given: the parent is gone.",
        "state",
        "a parent whose weights are replaced by those of its child",
        pool_in_place,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "A mean is stored in a view of the old weight, for a moment.",
        "state",
        "means that are written into the model that was handed in",
        pool_writes_into_the_old_heads,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "Only the pooled weights come back.",
        "form",
        "weights without those that are not pooled",
        pool_leaves_out_the_rest,
    ),
    _bug(
        "pooling_keeps_the_rest",
        "Pooled in float64 for precision, and left there.",
        "form",
        "weights of another type than those that were handed in",
        pool_in_double,
    ),
    _bug(
        "batch_fills_the_memory",
        "The popular formula: query heads where KV heads are stored.",
        "formula",
        "a cache of query heads",
        batch_by_query_heads,
    ),
    _bug(
        "batch_fills_the_memory",
        "Keys without values.",
        "formula",
        "a cache without its values",
        batch_of_keys_only,
    ),
    _bug(
        "batch_fills_the_memory",
        "A cache is kept for every layer.",
        "formula",
        "the cache of one layer",
        batch_of_one_layer,
    ),
    _bug(
        "batch_fills_the_memory",
        "Divides by 10⁹ and multiplies by 2³⁰: seven percent that nobody has.",
        "formula",
        "a memory whose gigabytes have two sizes",
        batch_in_binary_gigabytes,
    ),
    _bug(
        "batch_fills_the_memory",
        "The weights are forgotten.",
        "formula",
        "a memory without weights in it",
        batch_without_weights,
    ),
    _bug(
        "batch_fills_the_memory",
        "Every sequence brings the weights along.",
        "formula",
        "weights that are there once for each sequence",
        batch_with_weights_for_each,
    ),
    _bug(
        "batch_fills_the_memory",
        "16 bits, whatever was asked.",
        "formula",
        "a cache in 16 bits, whatever was asked",
        batch_in_16_bits_always,
    ),
    _bug(
        "batch_fills_the_memory",
        "/ for //: half a sequence, and less than none.",
        "form",
        "a part of a sequence",
        batch_as_a_fraction,
    ),
    _bug(
        "batch_fills_the_memory",
        "Rounded up, so that the last one does not fit.",
        "off by one",
        "a last sequence for which only a part of the room is left",
        batch_rounded_up,
    ),
    _bug(
        "edge_of_the_memory",
        "Weights larger than the memory: a negative number of sequences.",
        "capacity",
        "a number of sequences below zero",
        batch_below_zero,
    ),
    _bug(
        "edge_of_the_memory",
        "There is always room for one, is there not?",
        "capacity",
        "one sequence where there is no room for any",
        batch_at_least_one,
    ),
    _bug(
        "edge_of_the_memory",
        "< for <=: what fits to the byte is refused.",
        "off by one",
        "a memory that may never be quite full",
        batch_with_a_byte_to_spare,
    ),
    _bug(
        "edge_of_the_memory",
        "Counts on until the memory is full: the last one did not fit.",
        "off by one",
        "a count that stops one sequence too late",
        batch_counted_past_the_end,
    ),
    _bug(
        "edge_of_the_memory",
        "abs() against negative numbers: what is missing counts as room.",
        "capacity",
        "room as large as what is missing",
        batch_of_what_is_missing,
    ),
]

# --- right in another style ----------------------------------------------------------------------


def repeat_by_expanding(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, None].expand(B, G, n_rep, S, D).reshape(B, G * n_rep, S, D)


def repeat_by_index(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x[:, torch.arange(x.shape[1] * n_rep) // n_rep]


def repeat_by_stacking(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return torch.stack([x] * n_rep, dim=2).flatten(1, 2)


def repeat_head_by_head(x, n_rep):
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return torch.cat([head for head in x.split(1, dim=1) for _ in range(n_rep)], dim=1)


def grouped_by_einsum(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    grouped = q.view(B, G, H // G, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", grouped, k) * D**-0.5
    if mask is not None:
        shown = mask.expand(B, H, T, S).reshape(B, G, H // G, T, S)
        scores = torch.where(shown, scores, -torch.inf)
    out = torch.einsum("bgrts,bgsd->bgrtd", torch.softmax(scores, -1), v)
    return out.reshape(B, H, T, D)


def grouped_by_pytorch(q, k, v, mask=None):
    """PyTorch's own; on a CPU its fused kernel reads KV heads where they lie."""
    check_grouped(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def grouped_by_stacked_queries(q, k, v, mask=None):
    """PyTorch's attention on stacked queries, the mask stacked likewise."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    shown = None if mask is None else mask.expand(B, H, T, S).reshape(B, G, -1, S)
    return F.scaled_dot_product_attention(q.reshape(B, G, -1, D), k, v, attn_mask=shown).view_as(q)


def grouped_head_by_head(q, k, v, mask=None):
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    shown = None if mask is None else mask.expand(B, H, T, S)
    out = torch.empty_like(q)
    for h in range(H):
        scores = q[:, h] @ k[:, h // (H // G)].mT / math.sqrt(D)  # (B, T, S)
        if shown is not None:
            scores[~shown[:, h]] = -torch.inf
        out[:, h] = scores.softmax(-1) @ v[:, h // (H // G)]
    return out


def grouped_in_double(q, k, v, mask=None):
    """Each group by itself, one own-size copy in float64, softmax by hand."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    groups = []
    for queries, keys, values, g in zip(
        q.chunk(G, dim=1), k.unbind(1), v.unbind(1), range(G), strict=True
    ):
        rows = queries.flatten(1, 2).double() / D**0.5  # (B, H // G * T, D)
        scores = torch.baddbmm(torch.zeros(1).double(), rows, keys.double().mT, beta=0)
        if mask is not None:
            own = mask.expand(B, H, T, S).chunk(G, dim=1)[g].flatten(1, 2)
            scores = scores.masked_fill(own.logical_not(), -1e300)
        scores -= scores.amax(dim=-1, keepdim=True)
        e = scores.exp_()
        groups.append((e / e.sum(-1, keepdim=True)) @ values.double())
    return torch.cat([g.view(B, H // G, T, D) for g in groups], dim=1).to(q.dtype)


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


def pool_layer_by_layer(state, config, n_kv_heads):
    check_pooling(config, n_kv_heads)
    pooled = {**state}
    for layer in range(config.n_layers):
        for part in ("wk", "wv"):
            name = f"blocks.{layer}.attn.{part}.weight"
            heads = pooled[name].unflatten(0, (n_kv_heads, -1, config.head_dim))
            pooled[name] = heads.mean(1).flatten(0, 1)
    return pooled


def pool_by_striding(state, config, n_kv_heads):
    """Adds up the first heads of all groups, then the second ones, …"""

    def join(weight):
        heads = weight.reshape(config.n_kv_heads, config.head_dim, config.d_model)
        n = config.n_kv_heads // n_kv_heads
        total = torch.zeros_like(heads[::n])
        for i in range(n):
            total += heads[i::n]
        return total.div_(n).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


def batch_by_counting(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + (n + 1) * one <= memory_bytes:
        n += 1
    return n


def batch_by_hand(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    if memory_bytes <= weight_bytes:
        return 0
    numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim * n_tokens
    return (memory_bytes - weight_bytes) // (numbers * bytes_per_element)


def batch_as_a_float(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return float(max((memory_bytes - weight_bytes) // one, 0))


def batch_by_remainder(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    n, _ = divmod(
        memory_bytes - weight_bytes, kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    )
    return n if n > 0 else 0


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
