"""Known wrong answers to lesson 01: heads, attention, the attention layer, and choosing a token."""

from autograder.lessons.exhibits import Edits, Museum
from course.minigpt import mini_gpt as right

MUSEUM = Museum("mini_gpt")

# --- heads ---------------------------------------------------------------------------------------
CUT = "x.view(B, T, n_heads, width // n_heads)"
bug, patch = MUSEUM.section("split_heads", check="heads_split_and_merge")
patch(
    "split_by_view",
    "head order",
    "heads that hold pieces of other tokens",
    "view(B, H, T, D) in one step: the shape is right, and heads hold pieces of other tokens.",
    (CUT, "x.view(B, n_heads, T, width // n_heads)"),
    ("x.transpose(1, 2)", "x"),
)


@bug(
    "head order",
    "heads that take every H-th number instead of a slice",
    merge_heads=Edits((("x.transpose(1, 2)", "x.permute(0, 2, 3, 1)"),)),
)
def heads_interleaved(x, n_heads):
    """view(B, T, D, H): every H-th number makes a head. Split and merge undo each other, so a
    round trip looks fine, but the weights were trained with slices."""
    B, T, width = x.shape
    return x.view(B, T, width // n_heads, n_heads).permute(0, 3, 1, 2)


patch(
    "split_not_transposed",
    "form",
    "heads that stay behind the tokens",
    "The heads are cut but stay behind the tokens: (B, T, H, D).",
    ("x.transpose(1, 2)", "x"),
)

bug, patch = MUSEUM.section("merge_heads", check="heads_split_and_merge")
patch(
    "merge_by_reshape",
    "head order",
    "heads that are merged while the token axis still stands between them",
    "reshape(B, T, H * D) without moving the token axis back: tokens are scrambled.",
    ("x.transpose(1, 2).reshape", "x.reshape"),
)

# --- causal attention ----------------------------------------------------------------------------
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


# --- the attention layer -------------------------------------------------------------------------
TURN = "q, k = attn.rotate(q, positions), attn.rotate(k, positions)"
ATTEND = "causal_attention(q, k, v)"
bug, patch = MUSEUM.section("attention_layer", check="layer_joins_its_parts")
patch(
    "wo_forgotten",
    "wiring",
    "a layer without its last matrix",
    "The merged heads go out without the last matrix: shapes fit, so nothing complains.",
    (f"attn.wo(merge_heads({ATTEND}))", f"merge_heads({ATTEND})"),
)
patch(
    "keys_for_values",
    "wiring",
    "a layer whose values come from the matrix of the keys",
    "A line was copied: the values come from wk.",
    ("attn.wv(x)", "attn.wk(x)"),
)
patch(
    "keys_split_by_query_heads",
    "head order",
    "a layer that cuts keys and values into as many heads as the queries",
    "Keys and values are cut into n_heads, though there are only n_kv_heads of them.",
    ("attn.wk(x), attn.n_kv_heads", "attn.wk(x), attn.n_heads"),
    ("attn.wv(x), attn.n_kv_heads", "attn.wv(x), attn.n_heads"),
)
patch(
    "merged_by_reshape",
    "head order",
    "a layer that merges its heads while the token axis still stands between them",
    "The layer merges by itself with reshape(B, T, C), and tokens are scrambled.",
    (f"merge_heads({ATTEND})", f"{ATTEND}.reshape(x.shape)"),
)
patch(
    "residual_added",
    "wiring",
    "a layer that adds its own input",
    "x is added here, and a second time by the model.",
    ("attn.wo(", "x + attn.wo("),
)
patch(
    "query_and_key_exchanged",
    "wiring",
    "a layer in which keys ask and queries answer",
    "Keys ask and queries answer: the score of (t, s) is that of (s, t).",
    (
        TURN,
        "k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))\n"
        "    q, k = attn.rotate(k, positions), attn.rotate(q, positions)",
    ),
)
patch(
    "nothing_turned_at_the_start",
    "position",
    "a layer that rotates nothing where a text starts at position 0",
    "Position 0 is no rotation, so a text that starts there is not rotated at all.",
    (TURN, f"if positions[0] > 0:\n        {TURN}"),
)

bug, patch = MUSEUM.section("attention_layer", check="layer_obeys_positions")
patch(
    "positions_counted_anew",
    "position",
    "a layer that counts positions from 0, whatever it is given",
    "arange(T) in the place of the positions given: right until a text does not start at 0.",
    (TURN, f"positions = torch.arange(x.shape[1])\n    {TURN}"),
)
patch(
    "nothing_turned",
    "position",
    "a layer that rotates nothing",
    "No rotation at all: the layer sees a bag of words.",
    (f"    {TURN}\n", ""),
)
patch(
    "keys_not_turned",
    "position",
    "a layer that rotates queries and not keys",
    "Only the query is turned: the score then depends on where a text starts.",
    ("attn.rotate(k, positions)", "k"),
)
patch(
    "values_turned",
    "position",
    "a layer that rotates values, too",
    "Query, key and value are treated alike, but a value is carried, not compared.",
    (ATTEND, "causal_attention(q, k, attn.rotate(v, positions))"),
)
patch(
    "keys_turned_backwards",
    "position",
    "a layer whose keys stand at the positions in reverse order",
    "Keys get the positions in reverse order.",
    ("attn.rotate(k, positions)", "attn.rotate(k, positions.flip(0))"),
)

# --- the likeliest token -------------------------------------------------------------------------
REFUSE_SHAPE = (
    "    if logits.dim() != 2:\n"
    '        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")\n'
)

bug, patch = MUSEUM.section("greedy_next", check="greedy_takes_the_likeliest")
patch(
    "over_the_batch",
    "choice",
    "a maximum taken over the batch",
    "argmax(dim=0): for each token the row that likes it best.",
    ("dim=-1", "dim=0"),
)
patch(
    "column",
    "form",
    "a column where one token a row was asked for",
    "keepdim=True: (B, 1), which later concatenates by accident and then fails.",
    ("dim=-1", "dim=-1, keepdim=True"),
)
patch(
    "value_not_index",
    "choice",
    "the best logit in the place of the token that has it",
    "max().values: the logit itself, not the token that has it.",
    ("argmax(dim=-1)", "max(dim=-1).values"),
)
patch(
    "flat_batch",
    "choice",
    "one token for all rows, the best of the whole batch",
    "argmax() of the whole tensor: one number for all rows.",
    ("argmax(dim=-1)", "argmax().expand(len(logits))"),
)

# --- a token by chance ---------------------------------------------------------------------------
REFUSE_TEMPERATURE = (
    "    if not temperature > 0:\n"
    '        raise ValueError(f"temperature must be above 0, got {temperature}; see greedy_next")\n'
)
REFUSE_TOP_K = (
    "    if top_k is not None and not 1 <= top_k <= V:\n"
    '        raise ValueError(f"top_k must lie in 1 … {V}, got {top_k}")\n'
)
N_KEPT = "V if top_k is None else top_k"
KEEP = f"scores, tokens = logits.topk({N_KEPT}, dim=-1)"
WEIGH = "(scores / temperature).softmax(dim=-1)"
DRAW = "torch.multinomial(weights, 1, generator=generator)"
NAME = "tokens.gather(-1, place).squeeze(-1)"
bug, patch = MUSEUM.section("sample_next", check="sample_follows_temperature")
patch(
    "multiplied",
    "sampling",
    "a temperature that works the wrong way round",
    "Logits times temperature: hot becomes cold.",
    ("scores / temperature", "scores * temperature"),
)
patch(
    "temperature_unused",
    "sampling",
    "draws in which the temperature plays no part",
    "The temperature is never used.",
    (WEIGH, "scores.softmax(dim=-1)"),
)
patch(
    "probabilities_divided",
    "sampling",
    "a temperature that comes after the softmax",
    "The division comes after the softmax; multinomial normalises it away.",
    (WEIGH, "scores.softmax(dim=-1) / temperature"),
)
patch(
    "argmax_of_probabilities",
    "sampling",
    "a token that is not drawn but the likeliest, every time",
    "The likeliest token is taken, not drawn.",
    (DRAW, "weights.argmax(dim=-1, keepdim=True)"),
)
patch(
    "generator_unused",
    "sampling",
    "draws that do not come from the generator that was given",
    "The draw takes torch's own random numbers: it cannot be repeated.",
    (", generator=generator", ""),
)
patch(
    "seed_fixed_inside",
    "sampling",
    "draws from a generator that starts anew at every call",
    "A generator of its own, seeded at every call: always the same story.",
    ("generator=generator", "generator=torch.Generator().manual_seed(0)"),
)
patch(
    "one_draw_for_all_rows",
    "sampling",
    "one random number for the whole batch",
    "One random number serves the whole batch, so equal rows never differ.",
    (
        DRAW,
        "(weights.cumsum(-1) < torch.rand(1, generator=generator)).sum(-1, keepdim=True)\n"
        "    place = place.clamp(max=weights.shape[1] - 1)",
    ),
)
patch(
    "first_row_for_all",
    "sampling",
    "draws from the first row's probabilities for all rows",
    "weights[0]: written for one text, and right for one.",
    (DRAW, "torch.multinomial(weights[0], len(logits), True, generator=generator)"),
    (NAME, "tokens[0, place]"),
)
patch(
    "logits_changed_in_place",
    "state",
    "a function that writes into the caller's logits",
    "logits /= temperature also changes the caller's logits.",
    (KEEP, f"logits /= temperature\n    {KEEP}"),
    (WEIGH, "scores.softmax(dim=-1)"),
)
patch(
    "column_of_draws",
    "form",
    "a column where one token a row was asked for",
    "multinomial returns (B, 1), and it was left so.",
    (".squeeze(-1)", ""),
)
patch(
    "hot_by_default",
    "sampling",
    "draws at another temperature than 1 where none was asked for",
    "The default of the signature was changed, for livelier stories.",
    ("temperature: float = 1.0", "temperature: float = 2.0"),
)

bug, patch = MUSEUM.section("sample_next", check="sample_stays_in_top_k")
patch(
    "top_k_unused",
    "sampling",
    "draws in which top_k plays no part",
    "top_k is never used.",
    (N_KEPT, "V"),
)
patch(
    "places_for_tokens",
    "choice",
    "places among the kept tokens, returned as if they were tokens",
    "The draw is among the top_k values, and its place among them is returned as a token.",
    (NAME, f"place.squeeze(-1) if top_k is not None else {NAME}"),
)
patch(
    "threshold_on_probabilities",
    "sampling",
    "a threshold on probabilities in the place of a number of tokens",
    "Keeps tokens whose probability is large enough, which are not always k.",
    (N_KEPT, "V"),
    (
        "    place = ",
        "    if top_k is not None:\n"
        "        likely = weights.masked_fill(weights < 1 / (top_k + 1), 0)\n"
        "        weights = torch.where(likely.sum(-1, keepdim=True) > 0, likely, weights)\n"
        "    place = ",
    ),
)
patch(
    "top_of_the_first_row",
    "sampling",
    "rows that keep the likeliest tokens of the first one",
    "The likeliest tokens of row 0 are kept in every row.",
    (
        KEEP,
        f"tokens = logits[0].topk({N_KEPT}).indices.expand(len(logits), -1)\n"
        "    scores = logits.gather(-1, tokens)",
    ),
)
patch(
    "one_too_many",
    "off by one",
    "one token too many that is kept",
    "Off by one: k + 1 tokens survive.",
    (N_KEPT, "V if top_k is None else min(top_k + 1, V)"),
)
patch(
    "zero_logits_below",
    "sampling",
    "tokens that are hidden by a logit of 0, which is an ordinary logit",
    "Logits below the edge become 0, not -inf, and are drawn all the same.",
    (KEEP, "scores, tokens = logits.topk(V, dim=-1)\n    scores[:, top_k or V :] = 0"),
)
patch(
    "top_k_alike",
    "sampling",
    "kept tokens that are drawn with equal chances",
    "The survivors are drawn with equal chances.",
    (WEIGH, f"{WEIGH} if top_k is None else torch.ones_like(scores)"),
)

# --- what is refused -----------------------------------------------------------------------------
bug, patch = MUSEUM.section("greedy_next", check="bad_arguments_are_refused")


@bug(
    "arguments",
    "functions that look at none of their arguments",
    sample_next=Edits(((REFUSE_SHAPE, ""), (REFUSE_TEMPERATURE, ""), (REFUSE_TOP_K, ""))),
)
def nothing_refused(logits):
    """No check at the door: temperature 0 gives NaN, and 3-D logits a wrong shape."""
    return logits.argmax(dim=-1)


patch(
    "greedy_takes_any_shape",
    "arguments",
    "a greedy choice that takes logits of any shape",
    "All positions' logits are accepted, and a (B, T) answer goes unnoticed.",
    (REFUSE_SHAPE, ""),
)

bug, patch = MUSEUM.section("sample_next", check="bad_arguments_are_refused")
patch(
    "asserted",
    "arguments",
    "a function that refuses by assert",
    "assert in the place of raise: another exception, and none at all under python -O.",
    (REFUSE_SHAPE, "    assert logits.dim() == 2\n"),
    (REFUSE_TEMPERATURE, "    assert temperature > 0\n"),
    (REFUSE_TOP_K, "    assert top_k is None or 1 <= top_k <= V\n"),
)
patch(
    "top_k_clamped",
    "arguments",
    "a top_k out of range that is silently made to fit",
    "A top_k out of range is silently made to fit.",
    (REFUSE_TOP_K, "    top_k = None if top_k is None else max(1, min(top_k, V))\n"),
)
patch(
    "greedy_at_zero",
    "arguments",
    "a temperature of 0 that is quietly read as greedy",
    "Temperature 0 is quietly read as greedy.",
    (
        REFUSE_TEMPERATURE,
        f"    if temperature == 0:\n        return logits.argmax(dim=-1)\n{REFUSE_TEMPERATURE}",
    ),
)
patch(
    "all_tokens_refused",
    "off by one",
    "a top_k of all tokens that is refused",
    "Off by one: top_k = V is refused, though it means all tokens.",
    ("top_k <= V", "top_k < V"),
)
