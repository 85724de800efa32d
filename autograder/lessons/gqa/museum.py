"""Known wrong answers to lesson 06."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from autograder.lessons.exhibits import Museum
from course.bounds import check_between, check_grouped, check_heads, check_pooling
from course.minigpt import gqa as right
from course.minigpt.gqa import repeat_kv
from course.minigpt.kv_cache import kv_cache_bytes

MUSEUM = Museum("gqa")


bug, patch = MUSEUM.section("repeat_kv", check="heads_stand_in_a_row")


@bug("head order", "heads that are tiled, all of them before any comes again")
def repeat_that_tiles(x, n_rep):
    """repeat() for repeat_interleave(): a b a b. Prefill and decode do it alike, so cached
    equals uncached, and only who knows the order sees it."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x.repeat(1, n_rep, 1, 1)


@bug("head order", "tokens that are repeated where heads should be")
def repeat_along_the_sequence(x, n_rep):
    """dim=2 for dim=1: every token comes n times, and no head does."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    return x.repeat_interleave(n_rep, dim=2)


@bug("head order", "copies that stand behind each token, cut into heads afterwards")
def repeat_by_an_odd_reshape(x, n_rep):
    """The new axis stands behind the tokens, and the reshape that follows fits all the same."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, :, None].expand(B, G, S, n_rep, D).reshape(B, G * n_rep, S, D)


@bug("head order", "one KV head that serves every query head")
def repeat_one_head_for_all(x, n_rep):
    """Tried with one KV head only: the first serves everybody."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :1].expand(B, G * n_rep, S, D)


@bug("form", "copies on an axis of their own")
def repeat_with_an_axis_too_many(x, n_rep):
    """expand without the reshape: five axes."""
    check_heads(x)
    check_between("n_rep", n_rep, 1, 2**31)
    B, G, S, D = x.shape
    return x[:, :, None].expand(B, G, n_rep, S, D)


bug, patch = MUSEUM.section("grouped_attention", check="grouped_equals_repeated")


@bug("head order", "query heads that take the KV heads in turns")
def grouped_by_tiling(q, k, v, mask=None):
    """H is cut into (H // G, G): head h reads KV head h % G. Cached equals uncached all the
    same."""
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


@bug("head order", "a head number divided by the number of KV heads")
def grouped_by_division_by_the_kv_heads(q, k, v, mask=None):
    """h // G instead of h // (H // G): the number of heads for the size of a group."""
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


@bug("head order", "the right outputs, handed to other heads")
def grouped_with_the_axes_swapped_back(q, k, v, mask=None):
    """Group and head change places on the way back, and the reshape does not mind."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), G = q.shape, k.shape[1]
    out = _grouped(q, k, v, mask).view(B, G, H // G, T, D)
    return out.transpose(1, 2).reshape(B, H, T, D)


@bug("softmax", "scores divided by the root of the width of all heads together")
def grouped_scaled_by_the_model(q, k, v, mask=None):
    """The width of the model under the root, not that of a head."""
    return _grouped(q, k, v, mask, scale=math.sqrt(q.shape[1] * q.shape[3]))


@bug("softmax", "scores divided by the root of a group's width")
def grouped_scaled_by_the_group(q, k, v, mask=None):
    """A group is taken for one wide head: its width goes under the root."""
    D, per_group = q.shape[3], q.shape[1] // k.shape[1]
    return _grouped(q, k, v, mask, scale=math.sqrt(D * per_group))


@bug("softmax", "scores that go unscaled into the softmax")
def grouped_without_scale(q, k, v, mask=None):
    """The scale is forgotten."""
    return _grouped(q, k, v, mask, scale=1.0)


@bug("head order", "queries of a group that are averaged before they look")
def grouped_queries_averaged(q, k, v, mask=None):
    """Takes grouping for averaging: one query a group, and its result for all."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), G = q.shape, k.shape[1]
    mean = q.view(B, G, H // G, T, D).mean(dim=2)  # (B, G, T, D)
    if mask is not None and mask.dim() == 4 and mask.shape[1] == H:
        mask = mask[:, :: H // G]
    out = F.scaled_dot_product_attention(mean, k, v, attn_mask=mask)
    return out.repeat_interleave(H // G, dim=1)


@bug("mask", "attention that is causal where no mask was given")
def grouped_always_causal(q, k, v, mask=None):
    """Without a mask it puts in a causal one, which nobody asked for."""
    return _grouped(q, k, v, mask, causal=True)


@bug("softmax", "weights that add up over the queries of a group")
def grouped_softmax_over_the_group(q, k, v, mask=None):
    """Softmax over the stacked queries instead of the keys."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = (rows @ k.transpose(-2, -1) / math.sqrt(D)).view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.view(B, G, -1, S).softmax(dim=2)
    return (shares @ v).view(B, H, T, D)


bug, patch = MUSEUM.section("grouped_attention", check="masks_reach_every_head")


@bug("mask", "attention in which the mask hides nothing")
def grouped_without_mask(q, k, v, mask=None):
    """In decode everything is visible, so the mask is never used."""
    check_grouped(q, k, v, mask)
    return _grouped(q, k, v, None)


@bug("mask", "attention that hides what the mask shows")
def grouped_with_the_mask_turned_round(q, k, v, mask=None):
    """masked_fill(mask) for masked_fill(~mask): what should be seen is hidden."""
    check_grouped(q, k, v, mask)
    return _grouped(q, k, v, None if mask is None else ~mask)


@bug("mask", "a mask whose rows belong to other queries of the group")
def grouped_with_the_mask_on_group_rows(q, k, v, mask=None):
    """The stacked queries are head by head, the mask's rows are laid token by token."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = rows @ k.transpose(-2, -1) / math.sqrt(D)  # (B, G, H // G * T, S)
    if mask is not None:
        per_query = mask.expand(B, H, T, S).view(B, G, H // G, T, S) if mask.dim() == 4 else mask
        shown = per_query.expand(B, G, H // G, T, S).transpose(2, 3).reshape(B, G, -1, S)
        scores = scores.masked_fill(~shown, float("-inf"))
    return (scores.softmax(dim=-1) @ v).view(B, H, T, D)


@bug("mask", "the mask of the first row for the whole batch")
def grouped_with_the_mask_of_the_first_row(q, k, v, mask=None):
    """A mask with a batch axis is cut down to its first row."""
    check_grouped(q, k, v, mask)
    if mask is not None and mask.dim() == 4:
        mask = mask[0, 0]
    return _grouped(q, k, v, mask)


@bug("mask", "hidden keys with a score of zero, which is still a share")
def grouped_with_zero_for_hidden(q, k, v, mask=None):
    """Scores are multiplied by the mask: a hidden key has score 0, and so a share."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    rows = q.reshape(B, G, -1, D)
    scores = (rows @ k.transpose(-2, -1) / math.sqrt(D)).view(B, H, T, S)
    if mask is not None:
        scores = scores * mask
    return (scores.softmax(dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


@bug("mask", "one mask for all heads where each has its own")
def grouped_with_a_mask_for_one_head_only(q, k, v, mask=None):
    """Masks of single heads are put together, so each head sees what any may see."""
    check_grouped(q, k, v, mask)
    if mask is not None and mask.dim() == 4:
        mask = mask.any(dim=1, keepdim=True)
    return _grouped(q, k, v, mask)


def _repeated(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


bug, patch = MUSEUM.section("grouped_attention", check="nothing_is_expanded")


@bug("cost", "attention that first writes each KV head out for all its query heads")
def grouped_by_repeating(q, k, v, mask=None):
    """repeat_kv, then attention: right numbers, and a copy of the cache at every step."""
    check_grouped(q, k, v, mask)
    per_group = q.shape[1] // k.shape[1]
    return _repeated(q, repeat_kv(k, per_group), repeat_kv(v, per_group), mask)


@bug("cost", "a product whose batch axes differ, for which the keys are written out")
def grouped_by_broadcasting(q, k, v, mask=None):
    """A product whose batch axes differ: PyTorch writes the keys out, and the line does not say
    so."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    scores = q.view(B, G, H // G, T, D) @ k[:, :, None].transpose(-2, -1) / math.sqrt(D)
    scores = scores.view(B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1).view(B, G, H // G, T, S)
    return (shares @ v[:, :, None]).view(B, H, T, D)


@bug("cost", "keys that are written out, and values that are not")
def grouped_by_expanding_the_keys(q, k, v, mask=None):
    """expand() costs nothing; the reshape behind it copies. Only the keys, but all of them."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    wide = k[:, :, None].expand(B, G, H // G, S, D).reshape(B, H, S, D)
    scores = q @ wide.transpose(-2, -1) / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1).reshape(B, G, -1, S) @ v).view(B, H, T, D)


@bug("cost", "keys and values written out for one row after another")
def grouped_row_by_row_expanded(q, k, v, mask=None):
    """One text at a time, so that the copies stay small; together they are as large as ever."""
    check_grouped(q, k, v, mask)
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    shown = None if mask is None else mask.expand(B, H, T, S)
    head_of = torch.arange(H) // (H // G)
    rows = [
        _repeated(q[b], k[b][head_of], v[b][head_of], None if shown is None else shown[b])
        for b in range(B)
    ]
    return torch.stack(rows)


@bug("cost", "a tensor of all single products, before they are added up")
def grouped_by_products_of_elements(q, k, v, mask=None):
    """Every product of two numbers is written down before they are added up."""
    check_grouped(q, k, v, mask)
    (B, H, T, D), (G, S) = q.shape, k.shape[1:3]
    pairs = q.view(B, G, H // G, T, 1, D) * k[:, :, None, None]  # (B, G, H // G, T, S, D)
    scores = pairs.sum(dim=-1).view(B, H, T, S) / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(dim=-1).view(B, G, -1, S) @ v).view(B, H, T, D)


def _pool(state, config, n_kv_heads, join, names=("wk.weight", "wv.weight")):
    """Every weight of those names becomes what `join` makes of it."""
    check_pooling(config, n_kv_heads)
    pooled = dict(state)
    for name, weight in state.items():
        if name.endswith(names):
            pooled[name] = join(weight)
    return pooled


bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooled_heads_are_means")


@bug("head order", "means over neighbouring features instead of neighbouring heads")
def pool_adjacent_features(state, config, n_kv_heads):
    """view(-1, n, C).mean(1): neighbouring rows are features, not heads."""

    def join(weight):
        n = config.n_kv_heads // n_kv_heads
        return weight.view(-1, n, config.d_model).mean(dim=1)

    return _pool(state, config, n_kv_heads, join)


@bug("head order", "means over heads that are not neighbours")
def pool_strided_heads(state, config, n_kv_heads):
    """view(n, G, D, C): heads g, g + G, g + 2 G … are averaged, which no new head serves."""

    def join(weight):
        heads = weight.view(-1, n_kv_heads, config.head_dim, config.d_model)  # (n, G, D, C)
        return heads.mean(dim=0).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


@bug("head order", "one and the same mean for every new head")
def pool_all_heads_alike(state, config, n_kv_heads):
    """One mean over all heads, handed to every new one."""

    def join(weight):
        mean = weight.view(-1, config.head_dim, config.d_model).mean(dim=0)  # (D, C)
        return mean.repeat(n_kv_heads, 1)

    return _pool(state, config, n_kv_heads, join)


def _groups(weight, config, n_kv_heads):
    return weight.view(n_kv_heads, -1, config.head_dim, config.d_model)


@bug("formula", "sums of heads")
def pool_by_summing(state, config, n_kv_heads):
    """sum() for mean(): scores become n times as sharp."""

    def join(weight):
        return _groups(weight, config, n_kv_heads).sum(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


@bug("head order", "the first head of each group, without the others")
def pool_keeps_the_first(state, config, n_kv_heads):
    """The first head of each group stays, the others are forgotten."""

    def join(weight):
        return _groups(weight, config, n_kv_heads)[:, 0].reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


@bug("head order", "as many heads as wanted, the first ones there were")
def pool_keeps_the_first_of_all(state, config, n_kv_heads):
    """The first G heads stay, whichever groups there are."""

    def join(weight):
        return weight[: n_kv_heads * config.head_dim].clone()

    return _pool(state, config, n_kv_heads, join)


@bug("form", "matrices that are pooled along the wrong axis")
def pool_columns(state, config, n_kv_heads):
    """A Linear's weight is (out, in), and the in-axis is pooled."""

    def join(weight):
        n = config.n_kv_heads // n_kv_heads
        return weight.view(len(weight), -1, n).mean(dim=2)

    return _pool(state, config, n_kv_heads, join)


@bug("wiring", "keys that are pooled and values that are not")
def pool_keys_only(state, config, n_kv_heads):
    """Values are forgotten."""

    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join, names=("wk.weight",))


@bug("form", "weights with an axis of heads, which no matrix has")
def pool_keeps_the_axis_of_heads(state, config, n_kv_heads):
    """The reshape back to a matrix is forgotten."""

    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1)

    return _pool(state, config, n_kv_heads, join)


@bug("head order", "groups counted in query heads")
def pool_counts_query_heads(state, config, n_kv_heads):
    """Groups of H // G: right from MHA, wrong where the model shares heads already."""

    def join(weight):
        n = config.n_heads // n_kv_heads
        heads = weight.view(-1, config.head_dim, config.d_model)  # (old heads, D, C)
        means = [heads[g * n : (g + 1) * n].mean(dim=0) for g in range(n_kv_heads)]
        return torch.cat(means)

    return _pool(state, config, n_kv_heads, join)


bug, patch = MUSEUM.section("mean_pool_kv_heads", check="pooling_keeps_the_rest")


@bug("wiring", "a model whose queries are pooled as well")
def pool_queries_too(state, config, n_kv_heads):
    """wq looks like wk, and is pooled as well: the model has fewer query heads now."""

    def join(weight):
        heads = weight.view(-1, config.head_dim, config.d_model)
        return heads.view(n_kv_heads, -1, *heads.shape[1:]).mean(dim=1).flatten(0, 1)

    return _pool(state, config, n_kv_heads, join, names=("wk.weight", "wv.weight", "wq.weight"))


@bug("wiring", "a model whose output matrix is made smaller as well")
def pool_shrinks_the_output_too(state, config, n_kv_heads):
    """wo is made to fit fewer heads, though just as many arrive there."""

    def join(weight):
        return _groups(weight, config, n_kv_heads).mean(dim=1).reshape(-1, config.d_model)

    pooled = _pool(state, config, n_kv_heads, join)
    for name, weight in state.items():
        if name.endswith("wo.weight"):
            n = config.n_heads // n_kv_heads
            pooled[name] = weight.view(len(weight), n_kv_heads, n, -1).mean(dim=2).flatten(1)
    return pooled


@bug("state", "a parent whose weights are replaced by those of its child")
def pool_in_place(state, config, n_kv_heads):
    """Writes into the dict that it was given: the parent is gone."""
    pooled = right.mean_pool_kv_heads(state, config, n_kv_heads)
    state.update(pooled)
    return state


@bug("state", "means that are written into the model that was handed in")
def pool_writes_into_the_old_heads(state, config, n_kv_heads):
    """A mean is stored in a view of the old weight, for a moment."""

    def join(weight):
        groups = _groups(weight, config, n_kv_heads)
        groups[:, 0] = groups.mean(dim=1)  # a view: the model's own weight
        return groups[:, 0].reshape(-1, config.d_model).clone()

    return _pool(state, config, n_kv_heads, join)


@bug("form", "weights without those that are not pooled")
def pool_leaves_out_the_rest(state, config, n_kv_heads):
    """Only the pooled weights come back."""
    pooled = right.mean_pool_kv_heads(state, config, n_kv_heads)
    return {name: pooled[name] for name in pooled if ".wk." in name or ".wv." in name}


@bug("form", "weights of another type than those that were handed in")
def pool_in_double(state, config, n_kv_heads):
    """Pooled in float64 for precision, and left there."""

    def join(weight):
        groups = _groups(weight.double(), config, n_kv_heads)
        return groups.mean(dim=1).reshape(-1, config.d_model)

    return _pool(state, config, n_kv_heads, join)


def _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element):
    check_between("memory_bytes", memory_bytes, 1, 2**63)
    check_between("n_tokens", n_tokens, 1, 2**31)
    check_between("weight_bytes", weight_bytes, 0, 2**63)
    check_between("bytes_per_element", bytes_per_element, 1, 8)


bug, patch = MUSEUM.section("max_batch_that_fits", check="batch_fills_the_memory")


@bug("formula", "a cache of query heads")
def batch_by_query_heads(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """The popular formula: query heads where KV heads are stored."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = 2 * config.n_layers * config.n_heads * config.head_dim * n_tokens * bytes_per_element
    return max(0, memory_bytes - weight_bytes) // one


@bug("formula", "a cache without its values")
def batch_of_keys_only(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Keys without values."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element) // 2
    return max(0, memory_bytes - weight_bytes) // one


@bug("formula", "the cache of one layer")
def batch_of_one_layer(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """A cache is kept for every layer."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element) // config.n_layers
    return max(0, memory_bytes - weight_bytes) // one


@bug("formula", "a memory whose gigabytes have two sizes")
def batch_in_binary_gigabytes(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Divides by 10⁹ and multiplies by 2³⁰: seven percent that nobody has."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    free = memory_bytes / 1e9 * 2**30 - weight_bytes
    return int(max(0, free) // one)


@bug("formula", "a memory without weights in it")
def batch_without_weights(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """The weights are forgotten."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return memory_bytes // kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


@bug("formula", "weights that are there once for each sequence")
def batch_with_weights_for_each(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Every sequence brings the weights along."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return memory_bytes // (weight_bytes + one)


@bug("formula", "a cache in 16 bits, whatever was asked")
def batch_in_16_bits_always(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """16 bits, whatever was asked."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return max(0, memory_bytes - weight_bytes) // kv_cache_bytes(config, n_tokens)


@bug("form", "a part of a sequence")
def batch_as_a_fraction(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """/ for //: half a sequence, and less than none."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return (memory_bytes - weight_bytes) / one


@bug("off by one", "a last sequence for which only a part of the room is left")
def batch_rounded_up(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Rounded up, so that the last one does not fit."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(0, math.ceil((memory_bytes - weight_bytes) / one))


bug, patch = MUSEUM.section("max_batch_that_fits", check="edge_of_the_memory")


@bug("capacity", "a number of sequences below zero")
def batch_below_zero(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Weights larger than the memory: a negative number of sequences."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    return (memory_bytes - weight_bytes) // kv_cache_bytes(config, n_tokens, 1, bytes_per_element)


@bug("capacity", "one sequence where there is no room for any")
def batch_at_least_one(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """There is always room for one, is there not?"""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return max(1, (memory_bytes - weight_bytes) // one)


@bug("off by one", "a memory that may never be quite full")
def batch_with_a_byte_to_spare(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """< for <=: what fits to the byte is refused."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + (n + 1) * one < memory_bytes:
        n += 1
    return n


@bug("off by one", "a count that stops one sequence too late")
def batch_counted_past_the_end(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """Counts on until the memory is full: the last one did not fit."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one, n = kv_cache_bytes(config, n_tokens, 1, bytes_per_element), 0
    while weight_bytes + n * one < memory_bytes:
        n += 1
    return n


@bug("capacity", "room as large as what is missing")
def batch_of_what_is_missing(config, memory_bytes, n_tokens, weight_bytes, bytes_per_element=2):
    """abs() against negative numbers: what is missing counts as room."""
    _checked(memory_bytes, n_tokens, weight_bytes, bytes_per_element)
    one = kv_cache_bytes(config, n_tokens, 1, bytes_per_element)
    return abs(memory_bytes - weight_bytes) // one
