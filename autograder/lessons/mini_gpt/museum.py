"""Known wrong answers to lesson 01."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autograder.lessons.exhibits import Museum
from course.minigpt import mini_gpt as right
from course.minigpt.mini_gpt import causal_attention, merge_heads, split_heads

MUSEUM = Museum("mini_gpt")


bug, patch = MUSEUM.section("split_heads", check="heads_split_and_merge")


@bug("head order", "heads that hold pieces of other tokens")
def split_by_view(x: Tensor, n_heads: int) -> Tensor:
    """view(B, H, T, D) in one step: the shape is right, and heads hold pieces of other
    tokens."""
    B, T, width = x.shape
    return x.view(B, n_heads, T, width // n_heads)


bug, patch = MUSEUM.section("merge_heads", check="heads_split_and_merge")


@bug("head order", "heads that are merged while the token axis still stands between them")
def merge_by_reshape(x: Tensor) -> Tensor:
    """reshape(B, T, H * D) without moving the token axis back: tokens are scrambled."""
    B, H, T, D = x.shape
    return x.reshape(B, T, H * D)


def merge_interleaved(x: Tensor) -> Tensor:
    B, H, T, D = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, H * D)


bug, patch = MUSEUM.section("split_heads", check="heads_split_and_merge")


@bug(
    "head order",
    "heads that take every H-th number instead of a slice",
    merge_heads=merge_interleaved,
)
def heads_interleaved(x: Tensor, n_heads: int) -> Tensor:
    """view(B, T, D, H): every H-th number makes a head. Split and merge undo each other, so a
    round trip looks fine, but the weights were trained with slices."""
    B, T, width = x.shape
    return x.view(B, T, width // n_heads, n_heads).permute(0, 3, 1, 2)


@bug("form", "heads that stay behind the tokens")
def split_not_transposed(x: Tensor, n_heads: int) -> Tensor:
    """The heads are cut but stay behind the tokens: (B, T, H, D)."""
    B, T, width = x.shape
    return x.view(B, T, n_heads, width // n_heads)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


bug, patch = MUSEUM.section("causal_attention", check="attention_sees_no_future")


@bug("mask", "attention without a mask")
def no_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mask was left out: the model reads the answer before it gives it."""
    k, v = written_out(q, k, v)
    return scores_of(q, k).softmax(-1) @ v


def triangle(q: Tensor, diagonal: int = 0) -> Tensor:
    T = q.shape[2]
    return torch.ones(T, T, dtype=torch.bool).tril(diagonal)


@bug("mask", "a mask that shows the future and hides the past")
def mask_upside_down(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """triu in the place of tril: each token sees itself and the future, and no past."""
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q).T, float("-inf"))
    return scores.softmax(-1) @ v


@bug("mask", "a mask in which no token sees itself")
def blind_to_itself(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """tril(-1): no token sees itself, and token 0 sees nothing, which is NaN."""
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, -1), float("-inf"))
    return scores.softmax(-1) @ v


@bug("mask", "a mask in which no token sees itself, so that token 0 averages everything")
def blind_to_itself_but_finite(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """tril(-1) with -1e9 for hidden: token 0, which sees nothing, then averages everything."""
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, -1), -1e9)
    return scores.softmax(-1) @ v


@bug("mask", "a mask that lets each token see one token ahead")
def one_token_ahead(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """tril(1): each token sees the one that it should predict."""
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, 1), float("-inf"))
    return scores.softmax(-1) @ v


@bug("mask", "hidden scores that are set to 0, which is an ordinary score")
def zero_for_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores are multiplied by the mask, but a score of 0 is an ordinary score: e⁰ = 1."""
    k, v = written_out(q, k, v)
    return (scores_of(q, k) * triangle(q)).softmax(-1) @ v


bug, patch = MUSEUM.section("causal_attention", check="attention_weighs_by_softmax")


@bug("softmax", "weights that are hidden only after they were made to add up to 1")
def mask_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Hidden weights are set to 0 after the softmax: those that are left no longer add up to
    1."""
    k, v = written_out(q, k, v)
    return (scores_of(q, k).softmax(-1) * triangle(q)) @ v


@bug("softmax", "scores that go unscaled into the softmax")
def no_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No division by √D: weights too sharp, and sharper in wider heads."""
    return right.causal_attention(q * math.sqrt(q.shape[-1]), k, v)


@bug("softmax", "scores that are made too small, by the width of a head")
def scaled_by_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divided by D in the place of √D: weights almost uniform."""
    return right.causal_attention(q / math.sqrt(q.shape[-1]), k, v)


@bug("softmax", "scores that are scaled by the width of the model")
def scaled_by_model_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divided by the root of the model's width H · D in the place of the head's."""
    return right.causal_attention(q / math.sqrt(q.shape[1]), k, v)


@bug("softmax", "weights that add up to 1 over the queries")
def softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(dim=-2): each key's column adds up to 1, not each query's row."""
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q), float("-inf"))
    return scores.softmax(-2) @ v


@bug("softmax", "weights that went through the softmax twice")
def softmax_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A second softmax repairs the sum after the mask, and flattens the weights."""
    k, v = written_out(q, k, v)
    weights = scores_of(q, k).softmax(-1).masked_fill(~triangle(q), float("-inf"))
    return weights.softmax(-1) @ v


bug, patch = MUSEUM.section("causal_attention", check="query_heads_share_kv_heads")


@bug("head order", "KV heads that are given to the query heads in turns")
def tiled_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """repeat in the place of repeat_interleave: 0 1 0 1, not 0 0 1 1. Right for G = 1 and G =
    H."""
    group = q.shape[1] // k.shape[1]
    return right.causal_attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))


@bug("head order", "heads that weigh with one KV head and read another")
def tiled_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Keys repeated head by head, values as a whole: heads weigh with one and read another."""
    group = q.shape[1] // k.shape[1]
    return right.causal_attention(q, k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1))


@bug("head order", "query heads that all read the first KV head")
def first_kv_head_for_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Broadcasting from one KV head works without an error, and the others are never read."""
    return right.causal_attention(q, k[:, :1], v[:, :1])


@bug("head order", "attention that expects as many KV heads as query heads")
def no_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Written for G = H: where heads share, the matrices do not fit."""
    scores = scores_of(q, k).masked_fill(~triangle(q), float("-inf"))
    return scores.softmax(-1) @ v


@bug("head order", "KV heads that are averaged into one")
def averaged_kv_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """KV heads are averaged until one fits all query heads."""
    if k.shape[1] < q.shape[1]:
        k, v = k.mean(1, keepdim=True), v.mean(1, keepdim=True)
    return right.causal_attention(q, k, v)


def projected(attn, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        split_heads(attn.wq(x), attn.n_heads),
        split_heads(attn.wk(x), attn.n_kv_heads),
        split_heads(attn.wv(x), attn.n_kv_heads),
    )


bug, patch = MUSEUM.section("attention_layer", check="layer_joins_its_parts")


@bug("wiring", "a layer without its last matrix")
def wo_forgotten(attn, x: Tensor, positions: Tensor) -> Tensor:
    """The merged heads go out without the last matrix: shapes fit, so nothing complains."""
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return merge_heads(causal_attention(q, k, v))


@bug("wiring", "a layer whose values come from the matrix of the keys")
def keys_for_values(attn, x: Tensor, positions: Tensor) -> Tensor:
    """A line was copied: the values come from wk."""
    q, k, _ = projected(attn, x)
    rotated_q, rotated_k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(rotated_q, rotated_k, k)))


@bug("head order", "a layer that cuts keys and values into as many heads as the queries")
def keys_split_by_query_heads(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Keys and values are cut into n_heads, though there are only n_kv_heads of them."""
    q = split_heads(attn.wq(x), attn.n_heads)
    k = split_heads(attn.wk(x), attn.n_heads)
    v = split_heads(attn.wv(x), attn.n_heads)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


@bug("head order", "a layer that merges its heads while the token axis still stands between them")
def merged_by_reshape(attn, x: Tensor, positions: Tensor) -> Tensor:
    """The layer merges by itself with reshape(B, T, C), and tokens are scrambled."""
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(causal_attention(q, k, v).reshape(x.shape))


@bug("wiring", "a layer that adds its own input")
def residual_added(attn, x: Tensor, positions: Tensor) -> Tensor:
    """x is added here, and a second time by the model."""
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return x + attn.wo(merge_heads(causal_attention(q, k, v)))


@bug("wiring", "a layer in which keys ask and queries answer")
def query_and_key_exchanged(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Keys ask and queries answer: the score of (t, s) is that of (s, t)."""
    q, k, v = projected(attn, x)
    group = attn.n_heads // attn.n_kv_heads
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    mixed = causal_attention(k.repeat_interleave(group, 1), q, v.repeat_interleave(group, 1))
    return attn.wo(merge_heads(mixed))


bug, patch = MUSEUM.section("attention_layer", check="layer_obeys_positions")


@bug("position", "a layer that counts positions from 0, whatever it is given")
def positions_counted_anew(attn, x: Tensor, positions: Tensor) -> Tensor:
    """arange(T) in the place of the positions given: right until a text does not start at 0."""
    q, k, v = projected(attn, x)
    counted = torch.arange(x.shape[1])
    q, k = attn.rotate(q, counted), attn.rotate(k, counted)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


@bug("position", "a layer that rotates nothing")
def nothing_turned(attn, x: Tensor, positions: Tensor) -> Tensor:
    """No rotation at all: the layer sees a bag of words."""
    return attn.wo(merge_heads(causal_attention(*projected(attn, x))))


bug, patch = MUSEUM.section("attention_layer", check="layer_joins_its_parts")


@bug("position", "a layer that rotates nothing where a text starts at position 0")
def nothing_turned_at_the_start(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Position 0 is no rotation, so a text that starts there is not rotated at all."""
    q, k, v = projected(attn, x)
    if positions[0] > 0:
        q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


bug, patch = MUSEUM.section("attention_layer", check="layer_obeys_positions")


@bug("position", "a layer that rotates queries and not keys")
def keys_not_turned(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Only the query is turned: the score then depends on where a text starts."""
    q, k, v = projected(attn, x)
    return attn.wo(merge_heads(causal_attention(attn.rotate(q, positions), k, v)))


@bug("position", "a layer that rotates values, too")
def values_turned(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Query, key and value are treated alike, but a value is carried, not compared."""
    q, k, v = (attn.rotate(part, positions) for part in projected(attn, x))
    return attn.wo(merge_heads(causal_attention(q, k, v)))


@bug("position", "a layer whose keys stand at the positions in reverse order")
def keys_turned_backwards(attn, x: Tensor, positions: Tensor) -> Tensor:
    """Keys get the positions in reverse order."""
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions.flip(0))
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def check_shape(logits: Tensor) -> None:
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")


bug, patch = MUSEUM.section("greedy_next", check="greedy_takes_the_likeliest")


@bug("choice", "a maximum taken over the batch")
def over_the_batch(logits: Tensor) -> Tensor:
    """argmax(dim=0): for each token the row that likes it best."""
    check_shape(logits)
    return logits.argmax(dim=0)


@bug("form", "a column where one token a row was asked for")
def column(logits: Tensor) -> Tensor:
    """keepdim=True: (B, 1), which later concatenates by accident and then fails."""
    check_shape(logits)
    return logits.argmax(dim=-1, keepdim=True)


@bug("choice", "the best logit in the place of the token that has it")
def value_not_index(logits: Tensor) -> Tensor:
    """max().values: the logit itself, not the token that has it."""
    check_shape(logits)
    return logits.max(dim=-1).values


@bug("choice", "one token for all rows, the best of the whole batch")
def flat_batch(logits: Tensor) -> Tensor:
    """argmax() of the whole tensor: one number for all rows."""
    check_shape(logits)
    return logits.argmax().expand(logits.shape[0])


def check_arguments(logits: Tensor, temperature: float, top_k: int | None) -> None:
    check_shape(logits)
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if top_k is not None and not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"top_k must lie in 1 … {logits.shape[1]}, got {top_k}")


def kept(logits: Tensor, top_k: int | None) -> Tensor:
    """Logits with -inf for every token below the top_k-th."""
    if top_k is None:
        return logits
    edge = logits.topk(top_k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < edge, float("-inf"))


def drawn(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.multinomial(weights, 1, generator=generator).squeeze(-1)


bug, patch = MUSEUM.section("sample_next", check="sample_follows_temperature")


@bug("sampling", "a temperature that works the wrong way round")
def multiplied(logits, temperature=1.0, top_k=None, generator=None):
    """Logits times temperature: hot becomes cold."""
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) * temperature).softmax(-1), generator)


@bug("sampling", "draws in which the temperature plays no part")
def temperature_unused(logits, temperature=1.0, top_k=None, generator=None):
    """The temperature is never used."""
    check_arguments(logits, temperature, top_k)
    return drawn(kept(logits, top_k).softmax(-1), generator)


@bug("sampling", "a temperature that comes after the softmax")
def probabilities_divided(logits, temperature=1.0, top_k=None, generator=None):
    """The division comes after the softmax; multinomial normalises it away."""
    check_arguments(logits, temperature, top_k)
    return drawn(kept(logits, top_k).softmax(-1) / temperature, generator)


@bug("sampling", "a token that is not drawn but the likeliest, every time")
def argmax_of_probabilities(logits, temperature=1.0, top_k=None, generator=None):
    """The likeliest token is taken, not drawn."""
    check_arguments(logits, temperature, top_k)
    return (kept(logits, top_k) / temperature).softmax(-1).argmax(-1)


@bug("sampling", "draws that do not come from the generator that was given")
def generator_unused(logits, temperature=1.0, top_k=None, generator=None):
    """The draw takes torch's own random numbers: it cannot be repeated."""
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), None)


@bug("sampling", "draws from a generator that starts anew at every call")
def seed_fixed_inside(logits, temperature=1.0, top_k=None, generator=None):
    """A generator of its own, seeded at every call: always the same story."""
    check_arguments(logits, temperature, top_k)
    fixed = torch.Generator().manual_seed(0)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), fixed)


@bug("sampling", "one random number for the whole batch")
def one_draw_for_all_rows(logits, temperature=1.0, top_k=None, generator=None):
    """One random number serves the whole batch, so equal rows never differ."""
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    u = torch.rand(1, generator=generator)
    return (weights.cumsum(-1) < u).sum(-1).clamp(max=logits.shape[1] - 1)


@bug("sampling", "draws from the first row's probabilities for all rows")
def first_row_for_all(logits, temperature=1.0, top_k=None, generator=None):
    """weights[0]: written for one text, and right for one."""
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    return torch.multinomial(weights[0], len(logits), replacement=True, generator=generator)


@bug("state", "a function that writes into the caller's logits")
def logits_changed_in_place(logits, temperature=1.0, top_k=None, generator=None):
    """logits /= temperature also changes the caller's logits."""
    check_arguments(logits, temperature, top_k)
    logits /= temperature
    return drawn(kept(logits, top_k).softmax(-1), generator)


@bug("form", "a column where one token a row was asked for")
def sample_a_column(logits, temperature=1.0, top_k=None, generator=None):
    """multinomial returns (B, 1), and it was left so."""
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    return torch.multinomial(weights, 1, generator=generator)


bug, patch = MUSEUM.section("sample_next", check="sample_stays_in_top_k")


@bug("sampling", "draws in which top_k plays no part")
def top_k_unused(logits, temperature=1.0, top_k=None, generator=None):
    """top_k is never used."""
    check_arguments(logits, temperature, top_k)
    return drawn((logits / temperature).softmax(-1), generator)


@bug("choice", "places among the kept tokens, returned as if they were tokens")
def places_for_tokens(logits, temperature=1.0, top_k=None, generator=None):
    """The draw is among the top_k values, and its place among them is returned as a token."""
    check_arguments(logits, temperature, top_k)
    if top_k is not None:
        logits = logits.topk(top_k, dim=-1).values
    return drawn((logits / temperature).softmax(-1), generator)


@bug("sampling", "a threshold on probabilities in the place of a number of tokens")
def threshold_on_probabilities(logits, temperature=1.0, top_k=None, generator=None):
    """Keeps tokens whose probability is large enough, which are not always k."""
    check_arguments(logits, temperature, top_k)
    weights = (logits / temperature).softmax(-1)
    if top_k is not None:
        likely = weights.masked_fill(weights < 1 / (top_k + 1), 0)
        weights = torch.where(likely.sum(-1, keepdim=True) > 0, likely, weights)
    return drawn(weights, generator)


@bug("sampling", "rows that keep the likeliest tokens of the first one")
def top_of_the_first_row(logits, temperature=1.0, top_k=None, generator=None):
    """The likeliest tokens of row 0 are kept in every row."""
    check_arguments(logits, temperature, top_k)
    if top_k is not None:
        out = torch.ones(logits.shape[1], dtype=torch.bool)
        out[logits[0].topk(top_k).indices] = False
        logits = logits.masked_fill(out, float("-inf"))
    return drawn((logits / temperature).softmax(-1), generator)


@bug("off by one", "one token too many that is kept")
def one_too_many(logits, temperature=1.0, top_k=None, generator=None):
    """Off by one: k + 1 tokens survive."""
    check_arguments(logits, temperature, top_k)
    more = None if top_k is None else min(top_k + 1, logits.shape[1])
    return drawn((kept(logits, more) / temperature).softmax(-1), generator)


@bug("sampling", "tokens that are hidden by a logit of 0, which is an ordinary logit")
def zero_logits_below(logits, temperature=1.0, top_k=None, generator=None):
    """Logits below the edge become 0, not -inf, and are drawn all the same."""
    check_arguments(logits, temperature, top_k)
    scores = kept(logits, top_k)
    scores = scores.masked_fill(scores.isinf(), 0) / temperature
    return drawn(scores.softmax(-1), generator)


@bug("sampling", "kept tokens that are drawn with equal chances")
def top_k_alike(logits, temperature=1.0, top_k=None, generator=None):
    """The survivors are drawn with equal chances."""
    check_arguments(logits, temperature, top_k)
    if top_k is None:
        return drawn((logits / temperature).softmax(-1), generator)
    return drawn((kept(logits, top_k) > float("-inf")).float(), generator)


def sample_unchecked(logits, temperature=1.0, top_k=None, generator=None):
    return drawn((kept(logits, top_k) / temperature).softmax(-1), generator)


bug, patch = MUSEUM.section("greedy_next", check="bad_arguments_are_refused")


@bug("arguments", "functions that look at none of their arguments", sample_next=sample_unchecked)
def nothing_refused(logits: Tensor) -> Tensor:
    """No check at the door: temperature 0 gives NaN, and 3-D logits a wrong shape."""
    return logits.argmax(dim=-1)


@bug("arguments", "a greedy choice that takes logits of any shape")
def greedy_takes_any_shape(logits: Tensor) -> Tensor:
    """All positions' logits are accepted, and a (B, T) answer goes unnoticed."""
    return logits.argmax(dim=-1)


bug, patch = MUSEUM.section("sample_next", check="bad_arguments_are_refused")


@bug("arguments", "a function that refuses by assert")
def asserted(logits, temperature=1.0, top_k=None, generator=None):
    """assert in the place of raise: another exception, and none at all under python -O."""
    assert logits.dim() == 2
    assert temperature > 0
    assert top_k is None or 1 <= top_k <= logits.shape[1]
    return sample_unchecked(logits, temperature, top_k, generator)


@bug("arguments", "a top_k out of range that is silently made to fit")
def top_k_clamped(logits, temperature=1.0, top_k=None, generator=None):
    """A top_k out of range is silently made to fit."""
    check_arguments(logits, temperature, None)
    if top_k is not None:
        top_k = max(1, min(top_k, logits.shape[1]))
    return sample_unchecked(logits, temperature, top_k, generator)


@bug("arguments", "a temperature of 0 that is quietly read as greedy")
def greedy_at_zero(logits, temperature=1.0, top_k=None, generator=None):
    """Temperature 0 is quietly read as greedy."""
    if temperature == 0:
        return greedy_takes_any_shape(logits)
    check_arguments(logits, temperature, top_k)
    return sample_unchecked(logits, temperature, top_k, generator)


@bug("off by one", "a top_k of all tokens that is refused")
def all_tokens_refused(logits, temperature=1.0, top_k=None, generator=None):
    """Off by one: top_k = V is refused, though it means all tokens."""
    check_arguments(logits, temperature, top_k)
    if top_k is not None and top_k >= logits.shape[1]:
        raise ValueError(f"top_k must lie in 1 … {logits.shape[1] - 1}, got {top_k}")
    return sample_unchecked(logits, temperature, top_k, generator)
