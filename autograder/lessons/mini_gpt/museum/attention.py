"""Wrong answers to `causal_attention`."""

import torch

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

HIDE = '    scores = scores.masked_fill(~visible, float("-inf"))\n'
REPEAT_KEYS = "k.repeat_interleave(group, dim=1)"
REPEAT_VALUES = "v.repeat_interleave(group, dim=1)"
bug, patch = MUSEUM.section("causal_attention", check="attention_sees_no_future")
patch(
    "no_mask",
    "mask",
    "attention without a mask",
    "The mask was left out: the model reads the answer before it gives it.",
    (HIDE, ""),
)
patch(
    "mask_upside_down",
    "mask",
    "a mask that shows the future and hides the past",
    "triu in the place of tril: each token sees itself and the future, and no past.",
    (".tril()", ".triu()"),
)
patch(
    "blind_to_itself",
    "mask",
    "a mask in which no token sees itself",
    "tril(-1): no token sees itself, and token 0 sees nothing, which is NaN.",
    (".tril()", ".tril(-1)"),
)
patch(
    "blind_to_itself_but_finite",
    "mask",
    "a mask in which no token sees itself, so that token 0 averages everything",
    "tril(-1) with -1e9 for hidden: token 0, which sees nothing, then averages everything.",
    (".tril()", ".tril(-1)"),
    ('float("-inf")', "-1e9"),
)
patch(
    "blind_to_itself_and_zeroed",
    "mask",
    "a mask in which no token sees itself, so that token 0 gets nothing",
    "tril(-1) makes token 0 NaN, and nan_to_num hides that.",
    (".tril()", ".tril(-1)"),
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num()"),
)
patch(
    "blind_to_the_one_before",
    "mask",
    "a mask in which a token sees neither itself nor the one before",
    "What is hidden is triu(diagonal=-1): the diagonal moves the wrong way.",
    (".tril()", ".tril(-2)"),
)
patch(
    "one_token_ahead",
    "mask",
    "a mask that lets each token see one token ahead",
    "tril(1): each token sees the one that it should predict.",
    (".tril()", ".tril(1)"),
)
patch(
    "zero_for_hidden",
    "mask",
    "hidden scores that are set to 0, which is an ordinary score",
    "Scores are multiplied by the mask, but a score of 0 is an ordinary score: e⁰ = 1.",
    ('scores.masked_fill(~visible, float("-inf"))', "scores * visible"),
)
patch(
    "mask_inverted",
    "mask",
    "a mask that hides what it should show",
    "masked_fill hides where the mask is True, and the triangle says what is seen.",
    ("~visible", "visible"),
)
patch(
    "infinity_times_zero",
    "mask",
    "hidden scores made by multiplying with infinity, which is no number where nothing is hidden",
    "(1 - mask) * -inf: 0 times infinity is NaN, everywhere.",
    ('scores.masked_fill(~visible, float("-inf"))', 'scores + ~visible * float("-inf")'),
)
patch(
    "mask_of_64",
    "mask",
    "a mask that was made for texts of up to 64 tokens",
    "One mask for all texts, made once, and cut to size where the text is shorter.",
    (
        "torch.ones(T, T, dtype=torch.bool, device=q.device).tril()",
        "torch.ones(64, 64, dtype=torch.bool).tril()[:T, :T]",
    ),
    kind="sizes",
)
patch(
    "window_of_256",
    "mask",
    "a mask that forgets what is more than 256 tokens ago",
    "A window keeps long texts cheap, and was not asked for.",
    (".tril()", ".tril().triu(-255)"),
    kind="sizes",
)

bug, patch = MUSEUM.section("causal_attention", check="attention_weighs_by_softmax")
patch(
    "mask_after_softmax",
    "softmax",
    "weights that are hidden only after they were made to add up to 1",
    "Hidden weights are set to 0 after the softmax: those that are left no longer add up to 1.",
    (HIDE, ""),
    ("scores.softmax(dim=-1) @ v", "(scores.softmax(dim=-1) * visible) @ v"),
)
patch(
    "no_scale",
    "softmax",
    "scores that go unscaled into the softmax",
    "No division by √D: weights too sharp, and sharper in wider heads.",
    (" / math.sqrt(D)", ""),
)
patch(
    "scaled_by_width",
    "softmax",
    "scores that are made too small, by the width of a head",
    "Divided by D in the place of √D: weights almost uniform.",
    ("math.sqrt(D)", "D"),
)
patch(
    "scaled_by_model_width",
    "softmax",
    "scores that are scaled by the width of the model",
    "Divided by the root of the model's width H · D in the place of the head's.",
    ("math.sqrt(D)", "math.sqrt(H * D)"),
)
patch(
    "softmax_over_queries",
    "softmax",
    "weights that add up to 1 over the queries",
    "softmax(dim=-2): each key's column adds up to 1, not each query's row.",
    ("softmax(dim=-1)", "softmax(dim=-2)"),
)
patch(
    "softmax_twice",
    "softmax",
    "weights that went through the softmax twice",
    "A second softmax repairs the sum after the mask, and flattens the weights.",
    ("scores.masked_fill", "scores.softmax(dim=-1).masked_fill"),
)
patch(
    "hidden_by_minus_100",
    "mask",
    "hidden scores of minus 100, below which real scores may fall",
    "A large negative number hides as long as no real score is as low.",
    ('float("-inf")', "-100.0"),
)
patch(
    "scale_multiplied",
    "softmax",
    "scores that are multiplied by what they should be divided by",
    "Times √D: weights far too sharp.",
    (" / math.sqrt(D)", " * math.sqrt(D)"),
)
patch(
    "scaled_by_length",
    "softmax",
    "scores that are scaled by the number of tokens",
    "The root of T in the place of D: the same text weighs otherwise when it grows.",
    ("math.sqrt(D)", "math.sqrt(T)"),
)
patch(
    "weights_divided",
    "softmax",
    "weights that are scaled after the softmax instead of scores before it",
    "The division comes after the softmax: rows add up to 1 / √D.",
    (" / math.sqrt(D)", ""),
    ("scores.softmax(dim=-1) @ v", "scores.softmax(dim=-1) / math.sqrt(D) @ v"),
)
patch(
    "softmax_over_heads",
    "softmax",
    "weights that add up to 1 over the heads",
    "softmax(dim=1): where all heads are hidden, that is no number.",
    ("softmax(dim=-1)", "softmax(dim=1)"),
)
patch(
    "keys_ask",
    "wiring",
    "scores in which keys ask and queries answer",
    "k @ qᵀ: the square of scores is transposed before the mask.",
    ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)"),
)
patch(
    "keys_averaged",
    "wiring",
    "an average of keys in the place of values",
    "The weights meet the wrong tensor.",
    ("@ v  #", "@ k  #"),
)
patch(
    "values_compared",
    "wiring",
    "attention that compares values and averages keys",
    "k and v changed places.",
    ("    H, T, D = q.shape[1:]\n", "    k, v = v, k\n    H, T, D = q.shape[1:]\n"),
)
patch(
    "keys_of_the_first_row",
    "wiring",
    "queries of every text that meet the keys of the first one",
    "k[0]: written for one text, and broadcast over the batch.",
    ("k.transpose(-2, -1)", "k[:1].transpose(-2, -1)"),
    kind="batch",
)
patch(
    "float32_whatever_comes",
    "form",
    "a result in float32, whatever came in",
    "Everything is turned to float32 for the softmax, and nothing is turned back.",
    ("scores.softmax(dim=-1) @ v", "scores.float().softmax(dim=-1) @ v.float()"),
    kind="dtype",
)
patch(
    "queries_scaled_in_place",
    "state",
    "queries that are scaled where the caller keeps them",
    "q /= √D writes into the caller's queries: a second call scales them again.",
    ("q @ k.transpose(-2, -1) / math.sqrt(D)", "q.div_(math.sqrt(D)) @ k.transpose(-2, -1)"),
    kind="arguments",
)


@bug("form", "a view that takes heads to lie side by side in memory", kind="layout")
def heads_flattened_by_view(q, k, v):
    """view(B * H, T, D) for bmm: refused for tensors that come from a transpose."""
    B, H, T, D = q.shape
    G = k.shape[1]
    k, v = (part.repeat_interleave(H // G, dim=1).reshape(B * H, T, D) for part in (k, v))
    scores = torch.bmm(q.view(B * H, T, D), k.transpose(1, 2)) / D**0.5
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.bmm(weights, v).view(B, H, T, D)


OUTPUTS = {}


@bug("state", "attention whose result lies where the next call writes", kind="results")
def one_buffer_for_all_outputs(q, k, v):
    """One result tensor for each shape, to save memory."""
    out = OUTPUTS.setdefault((q.shape, q.dtype), torch.empty_like(q))
    return out.copy_(right.causal_attention(q, k, v))


bug, patch = MUSEUM.section("causal_attention", check="query_heads_share_kv_heads")
patch(
    "tiled_heads",
    "head order",
    "KV heads that are given to the query heads in turns",
    "repeat in the place of repeat_interleave: 0 1 0 1, not 0 0 1 1. Right for G = 1 and G = H.",
    (REPEAT_KEYS, "k.repeat(1, group, 1, 1)"),
    (REPEAT_VALUES, "v.repeat(1, group, 1, 1)"),
)
patch(
    "tiled_values",
    "head order",
    "heads that weigh with one KV head and read another",
    "Keys repeated head by head, values as a whole: heads weigh with one and read another.",
    (REPEAT_VALUES, "v.repeat(1, group, 1, 1)"),
)
patch(
    "first_kv_head_for_all",
    "head order",
    "query heads that all read the first KV head",
    "Broadcasting from one KV head works without an error, and the others are never read.",
    (REPEAT_KEYS, "k[:, :1]"),
    (REPEAT_VALUES, "v[:, :1]"),
)
patch(
    "no_groups",
    "head order",
    "attention that expects as many KV heads as query heads",
    "Written for G = H: where heads share, the matrices do not fit.",
    (f"    k = {REPEAT_KEYS}  # (B, G, T, D) -> (B, H, T, D)\n", ""),
    (f"    v = {REPEAT_VALUES}\n", ""),
)


@bug("head order", "KV heads that are averaged into one")
def averaged_kv_heads(q, k, v):
    """KV heads are averaged until one fits all query heads."""
    if k.shape[1] < q.shape[1]:
        k, v = k.mean(1, keepdim=True), v.mean(1, keepdim=True)
    return right.causal_attention(q, k, v)


patch(
    "two_query_heads_for_each",
    "head order",
    "KV heads that always serve two query heads",
    "The groups of the lesson's example, written down as a number.",
    ("group = H // k.shape[1]", "group = 1 if H == k.shape[1] else 2"),
    kind="sizes",
)
