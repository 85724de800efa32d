"""Wrong answers to `attention_layer_cached`."""

from autograder.lessons.kv_cache.museum import MUSEUM

bug, patch = MUSEUM.section("attention_layer_cached", check="layer_equals_uncached")
patch(
    "layer_with_is_causal",
    "mask",
    "a layer whose mask stands at the top left, as if nothing had been cached",
    "scaled_dot_product_attention(is_causal=True) masks at the top left.",
    ("attn_mask=mask", "is_causal=True"),
)
patch(
    "layer_without_mask",
    "mask",
    "a layer in which the first tokens of a chunk see the later ones",
    "Right token by token; in a chunk the first tokens see the later ones.",
    ("attn_mask=mask", "attn_mask=None"),
)
patch(
    "layer_with_plain_keys",
    "position",
    "a layer that rotates queries and not keys",
    "Only the queries are rotated.",
    ("attn.rotate(k, positions)", "k"),
)
patch(
    "layer_with_tiled_heads",
    "head order",
    "a layer that gives the KV heads to the query heads in turns",
    "repeat() for repeat_interleave(): head h reads KV head h % G.",
    ("k.repeat_interleave(group, dim=1)", "k.repeat(1, group, 1, 1)"),
    ("v.repeat_interleave(group, dim=1)", "v.repeat(1, group, 1, 1)"),
)
patch(
    "layer_without_scale",
    "softmax",
    "a layer whose scores go unscaled into the softmax",
    "The scores are not divided by the square root of D.",
    ("attn_mask=mask", "attn_mask=mask, scale=1.0"),
)
patch(
    "layer_that_restarts_positions",
    "position",
    "a layer whose positions restart at every call",
    "positions is ignored for arange(T).",
    ("q, k = attn.rotate", "positions = torch.arange(x.shape[1])\n    q, k = attn.rotate"),
)
patch(
    "layer_that_stores_wide_heads",
    "head order",
    "a layer that repeats the heads before it stores them",
    "The heads are repeated before they are stored.",
    ("k, v = cache.append(layer, k, v)", ""),
    ("T, S, mask =", "k, v = cache.append(layer, k, v)\n    T, S, mask ="),
)
patch(
    "layer_that_rotates_everything_again",
    "position",
    "a layer that rotates keys once more after they come out of the cache",
    "What comes back from the cache is rotated once more.",
    ("group = attn", "k = attn.rotate(k, torch.arange(k.shape[2]))\n    group = attn"),
)

patch(
    "layer_with_an_inverted_mask",
    "mask",
    "a layer whose tokens look where they may not, and nowhere else",
    'True means "may look" here, and "hide" in masked_fill.',
    ("if T > 1:", "if T:"),
    ("attn_mask=mask", "attn_mask=~mask"),
)
patch(
    "layer_with_is_causal_for_chunks",
    "mask",
    "a layer that masks a later chunk as if nothing had been cached",
    "is_causal=True for more than one token: right for a prompt, and for a token alone.",
    ("attn_mask=mask", "is_causal=q.shape[2] > 1"),
)
patch(
    "layer_with_an_inverted_fill",
    "mask",
    "a layer that fills with minus infinity where a token may look",
    "masked_fill hides where its mask is True; the mask says where to look.",
    ("if T > 1:", "if T:"),
    (
        "heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        "scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5\n"
        "    heads = scores.masked_fill(mask, float('-inf')).softmax(dim=-1) @ v",
    ),
)
patch(
    "layer_that_ignores_what_comes_back",
    "wiring",
    "a layer that appends to the cache and reads its own new keys alone",
    "append is called for its effect, and what it returns is dropped.",
    ("k, v = cache.append(layer, k, v)", "cache.append(layer, k, v)"),
)
patch(
    "layer_that_stores_values_as_keys",
    "wiring",
    "a layer that hands values over as keys, and keys as values",
    "The two arguments are the other way round, and come back so.",
    ("cache.append(layer, k, v)", "cache.append(layer, v, k)"),
)
patch(
    "layer_that_stores_queries",
    "wiring",
    "a layer that stores queries in the place of keys",
    "q for k: both are rotated, and both are cut into heads.",
    ("cache.append(layer, k, v)", "cache.append(layer, q[:, : attn.n_kv_heads], v)"),
)
patch(
    "layer_that_rotates_values",
    "position",
    "a layer that rotates values as well",
    "A value carries no position: it is what is read, not where.",
    (
        "q, k = attn.rotate(q, positions), attn.rotate(k, positions)",
        "q, k, v = (attn.rotate(rows, positions) for rows in (q, k, v))",
    ),
)
patch(
    "layer_that_advances",
    "state",
    "a layer that moves the length of the cache",
    "advance belongs behind the last layer, once for a forward pass.",
    ("group = attn", "cache.advance(x.shape[1])\n    group = attn"),
)
patch(
    "layer_without_wo",
    "wiring",
    "a layer without its output projection",
    "The heads are merged and returned as they are.",
    ("attn.wo(merge_heads(heads))", "merge_heads(heads)"),
)
patch(
    "layer_that_merges_by_reshape",
    "head order",
    "a layer that merges its heads without bringing them beside each other",
    "(B, H, T, D) is reshaped to (B, T, C): numbers of several tokens are mixed.",
    ("merge_heads(heads)", "heads.reshape(x.shape)"),
)
patch(
    "layer_that_cuts_heads_by_reshape",
    "head order",
    "a layer that cuts queries into heads without bringing the tokens behind them",
    "(B, T, C) is reshaped to (B, H, T, D): right for one token.",
    (
        "split_heads(attn.wq(x), attn.n_heads)",
        "attn.wq(x).reshape(x.shape[0], attn.n_heads, x.shape[1], -1)",
    ),
)
patch(
    "layer_scaled_by_the_whole_width",
    "softmax",
    "a layer whose scores are divided by the root of C in place of D",
    "The width of all heads together, not of one.",
    ("attn_mask=mask", "attn_mask=mask, scale=x.shape[-1] ** -0.5"),
)
patch(
    "layer_that_wants_contiguous_input",
    "form",
    "a layer that takes its input by view, and so only where it lies in order",
    "view() cannot join axes of a slice or a transpose; reshape() can.",
    (
        "    q = split_heads(attn.wq(x)",
        "    x = x.view(-1, x.shape[-1]).view(x.shape)\n    q = split_heads(attn.wq(x)",
    ),
    kind="layout",
)
patch(
    "layer_that_writes_into_x",
    "state",
    "a layer that adds its output to its input, in the caller's tensor",
    "x += is the residual of the block, and no work of this function.",
    (
        "return attn.wo(merge_heads(heads))",
        "out = attn.wo(merge_heads(heads))\n    x += out\n    return out",
    ),
    kind="arguments",
)
patch(
    "layer_in_float32",
    "form",
    "a layer that computes in float32 whatever it is given",
    "float() somewhere: fine until the weights are of another dtype.",
    ("    q = split_heads(attn.wq(x)", "    x = x.float()\n    q = split_heads(attn.wq(x)"),
    kind="dtype",
)

patch(
    "layer_that_stores_keys_before_rotation",
    "position",
    "a layer that stores keys as they are, and rotates all of them at every step",
    "Right as long as place and position agree; and every old key is rotated again each time.",
    (
        "q, k = attn.rotate(q, positions), attn.rotate(k, positions)",
        "q = attn.rotate(q, positions)",
    ),
    ("group = attn", "k = attn.rotate(k, torch.arange(k.shape[2]))\n    group = attn"),
)
