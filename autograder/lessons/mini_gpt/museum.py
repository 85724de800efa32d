"""The museum of lesson 01."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from autograder.lessons.exhibit import Bug, Variant
from course.minigpt import mini_gpt as reference
from course.minigpt.mini_gpt import causal_attention, merge_heads, split_heads

# Heads


def split_by_view(x: Tensor, n_heads: int) -> Tensor:
    B, T, width = x.shape
    return x.view(B, n_heads, T, width // n_heads)


def merge_by_reshape(x: Tensor) -> Tensor:
    B, H, T, D = x.shape
    return x.reshape(B, T, H * D)


def split_interleaved(x: Tensor, n_heads: int) -> Tensor:
    B, T, width = x.shape
    return x.view(B, T, width // n_heads, n_heads).permute(0, 3, 1, 2)


def merge_interleaved(x: Tensor) -> Tensor:
    B, H, T, D = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, T, H * D)


def split_transposed(x: Tensor, n_heads: int) -> Tensor:
    B, T, width = x.shape
    return x.view(B, T, n_heads, width // n_heads)


# Causal attention


def written_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def triangle(q: Tensor, diagonal: int = 0) -> Tensor:
    T = q.shape[2]
    return torch.ones(T, T, dtype=torch.bool).tril(diagonal)


def attention_without_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    return scores_of(q, k).softmax(-1) @ v


def attention_to_the_future(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q).T, float("-inf"))
    return scores.softmax(-1) @ v


def attention_blind_to_itself(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, -1), float("-inf"))
    return scores.softmax(-1) @ v


def attention_blind_to_itself_but_finite(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, -1), -1e9)
    return scores.softmax(-1) @ v


def attention_one_ahead(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q, 1), float("-inf"))
    return scores.softmax(-1) @ v


def attention_with_zero_for_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    return (scores_of(q, k) * triangle(q)).softmax(-1) @ v


def attention_masked_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    return (scores_of(q, k).softmax(-1) * triangle(q)) @ v


def attention_unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return reference.causal_attention(q * math.sqrt(q.shape[-1]), k, v)


def attention_scaled_by_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return reference.causal_attention(q / math.sqrt(q.shape[-1]), k, v)


def attention_scaled_by_model_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return reference.causal_attention(q / math.sqrt(q.shape[1]), k, v)


def attention_softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q, k).masked_fill(~triangle(q), float("-inf"))
    return scores.softmax(-2) @ v


def attention_softmax_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    weights = scores_of(q, k).softmax(-1).masked_fill(~triangle(q), float("-inf"))
    return weights.softmax(-1) @ v


def attention_with_tiled_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    return reference.causal_attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))


def attention_with_tiled_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    return reference.causal_attention(q, k.repeat_interleave(group, 1), v.repeat(1, group, 1, 1))


def attention_to_the_first_kv_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return reference.causal_attention(q, k[:, :1], v[:, :1])


def attention_without_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = scores_of(q, k).masked_fill(~triangle(q), float("-inf"))
    return scores.softmax(-1) @ v


def attention_with_averaged_kv_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if k.shape[1] < q.shape[1]:
        k, v = k.mean(1, keepdim=True), v.mean(1, keepdim=True)
    return reference.causal_attention(q, k, v)


# The attention layer


def projected(attn, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        split_heads(attn.wq(x), attn.n_heads),
        split_heads(attn.wk(x), attn.n_kv_heads),
        split_heads(attn.wv(x), attn.n_kv_heads),
    )


def layer_without_wo(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return merge_heads(causal_attention(q, k, v))


def layer_with_keys_for_values(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, _ = projected(attn, x)
    rotated_q, rotated_k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(rotated_q, rotated_k, k)))


def layer_that_splits_keys_by_query_heads(attn, x: Tensor, positions: Tensor) -> Tensor:
    q = split_heads(attn.wq(x), attn.n_heads)
    k = split_heads(attn.wk(x), attn.n_heads)
    v = split_heads(attn.wv(x), attn.n_heads)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def layer_that_reshapes(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(causal_attention(q, k, v).reshape(x.shape))


def layer_with_residual(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return x + attn.wo(merge_heads(causal_attention(q, k, v)))


def layer_with_query_and_key_exchanged(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    group = attn.n_heads // attn.n_kv_heads
    q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    mixed = causal_attention(k.repeat_interleave(group, 1), q, v.repeat_interleave(group, 1))
    return attn.wo(merge_heads(mixed))


def layer_that_ignores_positions(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    counted = torch.arange(x.shape[1])
    q, k = attn.rotate(q, counted), attn.rotate(k, counted)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def layer_without_rotation(attn, x: Tensor, positions: Tensor) -> Tensor:
    return attn.wo(merge_heads(causal_attention(*projected(attn, x))))


def layer_that_forgets_to_turn_keys(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    return attn.wo(merge_heads(causal_attention(attn.rotate(q, positions), k, v)))


def layer_that_turns_nothing_at_the_start(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    if positions[0] > 0:
        q, k = attn.rotate(q, positions), attn.rotate(k, positions)
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def layer_that_turns_values(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = (attn.rotate(part, positions) for part in projected(attn, x))
    return attn.wo(merge_heads(causal_attention(q, k, v)))


def layer_that_turns_keys_back(attn, x: Tensor, positions: Tensor) -> Tensor:
    q, k, v = projected(attn, x)
    q, k = attn.rotate(q, positions), attn.rotate(k, positions.flip(0))
    return attn.wo(merge_heads(causal_attention(q, k, v)))


# Choosing the next token


def greedy_over_the_batch(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.argmax(dim=0)


def greedy_as_a_column(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.argmax(dim=-1, keepdim=True)


def greedy_value(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.max(dim=-1).values


def greedy_of_the_flat_batch(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.argmax().expand(logits.shape[0])


def check_shape(logits: Tensor) -> None:
    if logits.dim() != 2:
        raise ValueError(f"logits must be (B, V), got shape {tuple(logits.shape)}")


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


def sample_multiplied(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) * temperature).softmax(-1), generator)


def sample_without_temperature(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn(kept(logits, top_k).softmax(-1), generator)


def sample_with_cooled_probabilities(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn(kept(logits, top_k).softmax(-1) / temperature, generator)


def sample_argmax(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return (kept(logits, top_k) / temperature).softmax(-1).argmax(-1)


def sample_without_generator(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), None)


def sample_with_a_fixed_seed(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    fixed = torch.Generator().manual_seed(0)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), fixed)


def sample_once_for_all_rows(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    u = torch.rand(1, generator=generator)
    return (weights.cumsum(-1) < u).sum(-1).clamp(max=logits.shape[1] - 1)


def sample_the_first_row(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    return torch.multinomial(weights[0], len(logits), replacement=True, generator=generator)


def sample_in_place(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    logits /= temperature
    return drawn(kept(logits, top_k).softmax(-1), generator)


def sample_as_a_column(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits, top_k) / temperature).softmax(-1)
    return torch.multinomial(weights, 1, generator=generator)


def sample_without_top_k(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn((logits / temperature).softmax(-1), generator)


def sample_places_for_tokens(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    if top_k is not None:
        logits = logits.topk(top_k, dim=-1).values
    return drawn((logits / temperature).softmax(-1), generator)


def sample_above_one_in_k(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (logits / temperature).softmax(-1)
    if top_k is not None:
        likely = weights.masked_fill(weights < 1 / (top_k + 1), 0)
        weights = torch.where(likely.sum(-1, keepdim=True) > 0, likely, weights)
    return drawn(weights, generator)


def sample_top_of_the_first_row(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    if top_k is not None:
        out = torch.ones(logits.shape[1], dtype=torch.bool)
        out[logits[0].topk(top_k).indices] = False
        logits = logits.masked_fill(out, float("-inf"))
    return drawn((logits / temperature).softmax(-1), generator)


def sample_one_too_many(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    more = None if top_k is None else min(top_k + 1, logits.shape[1])
    return drawn((kept(logits, more) / temperature).softmax(-1), generator)


def sample_with_zero_logits_below(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    scores = kept(logits, top_k)
    scores = scores.masked_fill(scores.isinf(), 0) / temperature
    return drawn(scores.softmax(-1), generator)


def sample_top_k_alike(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    if top_k is None:
        return drawn((logits / temperature).softmax(-1), generator)
    return drawn((kept(logits, top_k) > float("-inf")).float(), generator)


def greedy_unchecked(logits: Tensor) -> Tensor:
    return logits.argmax(dim=-1)


def sample_unchecked(logits, temperature=1.0, top_k=None, generator=None):
    return drawn((kept(logits, top_k) / temperature).softmax(-1), generator)


def sample_asserted(logits, temperature=1.0, top_k=None, generator=None):
    assert logits.dim() == 2
    assert temperature > 0
    assert top_k is None or 1 <= top_k <= logits.shape[1]
    return sample_unchecked(logits, temperature, top_k, generator)


def sample_clamped(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, None)
    if top_k is not None:
        top_k = max(1, min(top_k, logits.shape[1]))
    return sample_unchecked(logits, temperature, top_k, generator)


def sample_greedy_at_zero(logits, temperature=1.0, top_k=None, generator=None):
    if temperature == 0:
        return greedy_unchecked(logits)
    check_arguments(logits, temperature, top_k)
    return sample_unchecked(logits, temperature, top_k, generator)


def sample_that_refuses_all_tokens(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    if top_k is not None and top_k >= logits.shape[1]:
        raise ValueError(f"top_k must lie in 1 … {logits.shape[1] - 1}, got {top_k}")
    return sample_unchecked(logits, temperature, top_k, generator)


def bug(check: str, name: str, story: str, family: str, mistake: str, **answer) -> Bug:
    return Bug(name, story, f"mini_gpt.{check}", family, mistake, answer)


BUGS = [
    bug(
        "heads_split_and_merge",
        "split_by_view",
        "view(B, H, T, D) in one step: the shape is right, and heads hold pieces of other tokens.",
        "head order",
        "heads that hold pieces of other tokens",
        split_heads=split_by_view,
    ),
    bug(
        "heads_split_and_merge",
        "merge_by_reshape",
        "reshape(B, T, H * D) without moving the token axis back: tokens are scrambled.",
        "head order",
        "heads that are merged while the token axis still stands between them",
        merge_heads=merge_by_reshape,
    ),
    bug(
        "heads_split_and_merge",
        "heads_interleaved",
        "view(B, T, D, H): every H-th number makes a head. Split and merge undo each other, so a "
        "round trip looks fine, but the weights were trained with slices.",
        "head order",
        "heads that take every H-th number instead of a slice",
        split_heads=split_interleaved,
        merge_heads=merge_interleaved,
    ),
    bug(
        "heads_split_and_merge",
        "split_not_transposed",
        "The heads are cut but stay behind the tokens: (B, T, H, D).",
        "form",
        "heads that stay behind the tokens",
        split_heads=split_transposed,
    ),
    bug(
        "attention_sees_no_future",
        "no_mask",
        "The mask was left out: the model reads the answer before it gives it.",
        "mask",
        "attention without a mask",
        causal_attention=attention_without_mask,
    ),
    bug(
        "attention_sees_no_future",
        "mask_upside_down",
        "triu in the place of tril: each token sees itself and the future, and no past.",
        "mask",
        "a mask that shows the future and hides the past",
        causal_attention=attention_to_the_future,
    ),
    bug(
        "attention_sees_no_future",
        "blind_to_itself",
        "tril(-1): no token sees itself, and token 0 sees nothing, which is NaN.",
        "mask",
        "a mask in which no token sees itself",
        causal_attention=attention_blind_to_itself,
    ),
    bug(
        "attention_sees_no_future",
        "blind_to_itself_but_finite",
        "tril(-1) with -1e9 for hidden: token 0, which sees nothing, then averages everything.",
        "mask",
        "a mask in which no token sees itself, so that token 0 averages everything",
        causal_attention=attention_blind_to_itself_but_finite,
    ),
    bug(
        "attention_sees_no_future",
        "one_token_ahead",
        "tril(1): each token sees the one that it should predict.",
        "mask",
        "a mask that lets each token see one token ahead",
        causal_attention=attention_one_ahead,
    ),
    bug(
        "attention_sees_no_future",
        "zero_for_hidden",
        "Scores are multiplied by the mask, but a score of 0 is an ordinary score: e⁰ = 1.",
        "mask",
        "hidden scores that are set to 0, which is an ordinary score",
        causal_attention=attention_with_zero_for_hidden,
    ),
    bug(
        "attention_weighs_by_softmax",
        "mask_after_softmax",
        "Hidden weights are set to 0 after the softmax: those that are left no longer add up to 1.",
        "softmax",
        "weights that are hidden only after they were made to add up to 1",
        causal_attention=attention_masked_after_softmax,
    ),
    bug(
        "attention_weighs_by_softmax",
        "no_scale",
        "No division by √D: weights too sharp, and sharper in wider heads.",
        "softmax",
        "scores that go unscaled into the softmax",
        causal_attention=attention_unscaled,
    ),
    bug(
        "attention_weighs_by_softmax",
        "scaled_by_width",
        "Divided by D in the place of √D: weights almost uniform.",
        "softmax",
        "scores that are made too small, by the width of a head",
        causal_attention=attention_scaled_by_width,
    ),
    bug(
        "attention_weighs_by_softmax",
        "scaled_by_model_width",
        "Divided by the root of the model's width H · D in the place of the head's.",
        "softmax",
        "scores that are scaled by the width of the model",
        causal_attention=attention_scaled_by_model_width,
    ),
    bug(
        "attention_weighs_by_softmax",
        "softmax_over_queries",
        "softmax(dim=-2): each key's column adds up to 1, not each query's row.",
        "softmax",
        "weights that add up to 1 over the queries",
        causal_attention=attention_softmax_over_queries,
    ),
    bug(
        "attention_weighs_by_softmax",
        "softmax_twice",
        "A second softmax repairs the sum after the mask, and flattens the weights.",
        "softmax",
        "weights that went through the softmax twice",
        causal_attention=attention_softmax_twice,
    ),
    bug(
        "query_heads_share_kv_heads",
        "tiled_heads",
        "repeat in the place of repeat_interleave: 0 1 0 1, not 0 0 1 1. Right for G = 1 and G = H.",
        "head order",
        "KV heads that are given to the query heads in turns",
        causal_attention=attention_with_tiled_heads,
    ),
    bug(
        "query_heads_share_kv_heads",
        "tiled_values",
        "Keys repeated head by head, values as a whole: heads weigh with one and read another.",
        "head order",
        "heads that weigh with one KV head and read another",
        causal_attention=attention_with_tiled_values,
    ),
    bug(
        "query_heads_share_kv_heads",
        "first_kv_head_for_all",
        "Broadcasting from one KV head works without an error, and the others are never read.",
        "head order",
        "query heads that all read the first KV head",
        causal_attention=attention_to_the_first_kv_head,
    ),
    bug(
        "query_heads_share_kv_heads",
        "no_groups",
        "Written for G = H: where heads share, the matrices do not fit.",
        "head order",
        "attention that expects as many KV heads as query heads",
        causal_attention=attention_without_groups,
    ),
    bug(
        "query_heads_share_kv_heads",
        "averaged_kv_heads",
        "KV heads are averaged until one fits all query heads.",
        "head order",
        "KV heads that are averaged into one",
        causal_attention=attention_with_averaged_kv_heads,
    ),
    bug(
        "layer_joins_its_parts",
        "wo_forgotten",
        "The merged heads go out without the last matrix: shapes fit, so nothing complains.",
        "wiring",
        "a layer without its last matrix",
        attention_layer=layer_without_wo,
    ),
    bug(
        "layer_joins_its_parts",
        "keys_for_values",
        "A line was copied: the values come from wk.",
        "wiring",
        "a layer whose values come from the matrix of the keys",
        attention_layer=layer_with_keys_for_values,
    ),
    bug(
        "layer_joins_its_parts",
        "keys_split_by_query_heads",
        "Keys and values are cut into n_heads, though there are only n_kv_heads of them.",
        "head order",
        "a layer that cuts keys and values into as many heads as the queries",
        attention_layer=layer_that_splits_keys_by_query_heads,
    ),
    bug(
        "layer_joins_its_parts",
        "merged_by_reshape",
        "The layer merges by itself with reshape(B, T, C), and tokens are scrambled.",
        "head order",
        "a layer that merges its heads while the token axis still stands between them",
        attention_layer=layer_that_reshapes,
    ),
    bug(
        "layer_joins_its_parts",
        "residual_added",
        "x is added here, and a second time by the model.",
        "wiring",
        "a layer that adds its own input",
        attention_layer=layer_with_residual,
    ),
    bug(
        "layer_joins_its_parts",
        "query_and_key_exchanged",
        "Keys ask and queries answer: the score of (t, s) is that of (s, t).",
        "wiring",
        "a layer in which keys ask and queries answer",
        attention_layer=layer_with_query_and_key_exchanged,
    ),
    bug(
        "layer_obeys_positions",
        "positions_counted_anew",
        "arange(T) in the place of the positions given: right until a text does not start at 0.",
        "position",
        "a layer that counts positions from 0, whatever it is given",
        attention_layer=layer_that_ignores_positions,
    ),
    bug(
        "layer_obeys_positions",
        "nothing_turned",
        "No rotation at all: the layer sees a bag of words.",
        "position",
        "a layer that rotates nothing",
        attention_layer=layer_without_rotation,
    ),
    bug(
        "layer_joins_its_parts",
        "nothing_turned_at_the_start",
        "Position 0 is no rotation, so a text that starts there is not rotated at all.",
        "position",
        "a layer that rotates nothing where a text starts at position 0",
        attention_layer=layer_that_turns_nothing_at_the_start,
    ),
    bug(
        "layer_obeys_positions",
        "keys_not_turned",
        "Only the query is turned: the score then depends on where a text starts.",
        "position",
        "a layer that rotates queries and not keys",
        attention_layer=layer_that_forgets_to_turn_keys,
    ),
    bug(
        "layer_obeys_positions",
        "values_turned",
        "Query, key and value are treated alike, but a value is carried, not compared.",
        "position",
        "a layer that rotates values, too",
        attention_layer=layer_that_turns_values,
    ),
    bug(
        "layer_obeys_positions",
        "keys_turned_backwards",
        "Keys get the positions in reverse order.",
        "position",
        "a layer whose keys stand at the positions in reverse order",
        attention_layer=layer_that_turns_keys_back,
    ),
    bug(
        "greedy_takes_the_likeliest",
        "over_the_batch",
        "argmax(dim=0): for each token the row that likes it best.",
        "choice",
        "a maximum taken over the batch",
        greedy_next=greedy_over_the_batch,
    ),
    bug(
        "greedy_takes_the_likeliest",
        "column",
        "keepdim=True: (B, 1), which later concatenates by accident and then fails.",
        "form",
        "a column where one token a row was asked for",
        greedy_next=greedy_as_a_column,
    ),
    bug(
        "greedy_takes_the_likeliest",
        "value_not_index",
        "max().values: the logit itself, not the token that has it.",
        "choice",
        "the best logit in the place of the token that has it",
        greedy_next=greedy_value,
    ),
    bug(
        "greedy_takes_the_likeliest",
        "flat_batch",
        "argmax() of the whole tensor: one number for all rows.",
        "choice",
        "one token for all rows, the best of the whole batch",
        greedy_next=greedy_of_the_flat_batch,
    ),
    bug(
        "sample_follows_temperature",
        "multiplied",
        "Logits times temperature: hot becomes cold.",
        "sampling",
        "a temperature that works the wrong way round",
        sample_next=sample_multiplied,
    ),
    bug(
        "sample_follows_temperature",
        "temperature_unused",
        "The temperature is never used.",
        "sampling",
        "draws in which the temperature plays no part",
        sample_next=sample_without_temperature,
    ),
    bug(
        "sample_follows_temperature",
        "probabilities_divided",
        "The division comes after the softmax; multinomial normalises it away.",
        "sampling",
        "a temperature that comes after the softmax",
        sample_next=sample_with_cooled_probabilities,
    ),
    bug(
        "sample_follows_temperature",
        "argmax_of_probabilities",
        "The likeliest token is taken, not drawn.",
        "sampling",
        "a token that is not drawn but the likeliest, every time",
        sample_next=sample_argmax,
    ),
    bug(
        "sample_follows_temperature",
        "generator_unused",
        "The draw takes torch's own random numbers: it cannot be repeated.",
        "sampling",
        "draws that do not come from the generator that was given",
        sample_next=sample_without_generator,
    ),
    bug(
        "sample_follows_temperature",
        "seed_fixed_inside",
        "A generator of its own, seeded at every call: always the same story.",
        "sampling",
        "draws from a generator that starts anew at every call",
        sample_next=sample_with_a_fixed_seed,
    ),
    bug(
        "sample_follows_temperature",
        "one_draw_for_all_rows",
        "One random number serves the whole batch, so equal rows never differ.",
        "sampling",
        "one random number for the whole batch",
        sample_next=sample_once_for_all_rows,
    ),
    bug(
        "sample_follows_temperature",
        "first_row_for_all",
        "weights[0]: written for one text, and right for one.",
        "sampling",
        "draws from the first row's probabilities for all rows",
        sample_next=sample_the_first_row,
    ),
    bug(
        "sample_follows_temperature",
        "logits_changed_in_place",
        "logits /= temperature also changes the caller's logits.",
        "state",
        "a function that writes into the caller's logits",
        sample_next=sample_in_place,
    ),
    bug(
        "sample_follows_temperature",
        "column",
        "multinomial returns (B, 1), and it was left so.",
        "form",
        "a column where one token a row was asked for",
        sample_next=sample_as_a_column,
    ),
    bug(
        "sample_stays_in_top_k",
        "top_k_unused",
        "top_k is never used.",
        "sampling",
        "draws in which top_k plays no part",
        sample_next=sample_without_top_k,
    ),
    bug(
        "sample_stays_in_top_k",
        "places_for_tokens",
        "The draw is among the top_k values, and its place among them is returned as a token.",
        "choice",
        "places among the kept tokens, returned as if they were tokens",
        sample_next=sample_places_for_tokens,
    ),
    bug(
        "sample_stays_in_top_k",
        "threshold_on_probabilities",
        "Keeps tokens whose probability is large enough, which are not always k.",
        "sampling",
        "a threshold on probabilities in the place of a number of tokens",
        sample_next=sample_above_one_in_k,
    ),
    bug(
        "sample_stays_in_top_k",
        "top_of_the_first_row",
        "The likeliest tokens of row 0 are kept in every row.",
        "sampling",
        "rows that keep the likeliest tokens of the first one",
        sample_next=sample_top_of_the_first_row,
    ),
    bug(
        "sample_stays_in_top_k",
        "one_too_many",
        "Off by one: k + 1 tokens survive.",
        "off by one",
        "one token too many that is kept",
        sample_next=sample_one_too_many,
    ),
    bug(
        "sample_stays_in_top_k",
        "zero_logits_below",
        "Logits below the edge become 0, not -inf, and are drawn all the same.",
        "sampling",
        "tokens that are hidden by a logit of 0, which is an ordinary logit",
        sample_next=sample_with_zero_logits_below,
    ),
    bug(
        "sample_stays_in_top_k",
        "top_k_alike",
        "The survivors are drawn with equal chances.",
        "sampling",
        "kept tokens that are drawn with equal chances",
        sample_next=sample_top_k_alike,
    ),
    bug(
        "bad_arguments_are_refused",
        "nothing_refused",
        "No check at the door: temperature 0 gives NaN, and 3-D logits a wrong shape.",
        "arguments",
        "functions that look at none of their arguments",
        greedy_next=greedy_unchecked,
        sample_next=sample_unchecked,
    ),
    bug(
        "bad_arguments_are_refused",
        "greedy_takes_any_shape",
        "All positions' logits are accepted, and a (B, T) answer goes unnoticed.",
        "arguments",
        "a greedy choice that takes logits of any shape",
        greedy_next=greedy_unchecked,
    ),
    bug(
        "bad_arguments_are_refused",
        "asserted",
        "assert in the place of raise: another exception, and none at all under python -O.",
        "arguments",
        "a function that refuses by assert",
        sample_next=sample_asserted,
    ),
    bug(
        "bad_arguments_are_refused",
        "top_k_clamped",
        "A top_k out of range is silently made to fit.",
        "arguments",
        "a top_k out of range that is silently made to fit",
        sample_next=sample_clamped,
    ),
    bug(
        "bad_arguments_are_refused",
        "greedy_at_zero",
        "Temperature 0 is quietly read as greedy.",
        "arguments",
        "a temperature of 0 that is quietly read as greedy",
        sample_next=sample_greedy_at_zero,
    ),
    bug(
        "bad_arguments_are_refused",
        "all_tokens_refused",
        "Off by one: top_k = V is refused, though it means all tokens.",
        "off by one",
        "a top_k of all tokens that is refused",
        sample_next=sample_that_refuses_all_tokens,
    ),
]


# Correct answers in other styles


def split_by_unflatten(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).movedim(-2, 1)


def merge_by_cat(x: Tensor) -> Tensor:
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


def split_by_stack(x: Tensor, n_heads: int) -> Tensor:
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_by_permute(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1, 3).flatten(2)


def attention_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    B, H, T, D = q.shape
    G = k.shape[1]
    q = q.reshape(B, G, H // G, T, D)
    scores = torch.einsum("bgitd,bgsd->bgits", q, k) * D**-0.5
    scores = scores + torch.full((T, T), -1e9).triu(1)
    return torch.einsum("bgits,bgsd->bgitd", scores.softmax(-1), v).reshape(B, H, T, D)


def attention_by_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, *written_out(q, k, v), is_causal=True)


def attention_in_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    scores = scores_of(q.double(), k.double()).masked_fill(~triangle(q), float("-inf"))
    return (scores.softmax(-1) @ v.double()).to(q.dtype)


def attention_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    H, T, D = q.shape[1:]
    group = H // k.shape[1]
    out = torch.empty_like(q)
    for h in range(H):
        for t in range(T):
            keys, values = k[:, h // group, : t + 1], v[:, h // group, : t + 1]
            scores = (keys @ q[:, h, t, :, None]).squeeze(-1) / D**0.5  # (B, t + 1)
            out[:, h, t] = (scores.softmax(-1)[:, None] @ values).squeeze(1)
    return out


def attention_by_exponentials(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = written_out(q, k, v)
    weights = scores_of(q, k).exp() * triangle(q)
    return weights @ v / weights.sum(-1, keepdim=True)


def layer_in_two_steps(attn, x: Tensor, positions: Tensor) -> Tensor:
    B, T, _ = x.shape
    k, q, v = (
        F.linear(x, matrix.weight).reshape(B, T, -1, attn.head_dim).transpose(1, 2)
        for matrix in (attn.wk, attn.wq, attn.wv)
    )
    k = attn.rotate(k, positions)
    out = causal_attention(attn.rotate(q, positions), k, v)
    return F.linear(out.transpose(1, 2).flatten(2), attn.wo.weight)


def layer_head_by_head(attn, x: Tensor, positions: Tensor) -> Tensor:
    """From position 0 on, since only distances matter; each head goes through its part of wo."""
    q, k, v = projected(attn, x)
    positions = positions - positions[0]
    heads = causal_attention(attn.rotate(q, positions), attn.rotate(k, positions), v)
    parts = attn.wo.weight.split(attn.head_dim, dim=1)  # (C, D) each
    return sum(heads[:, h] @ part.T for h, part in enumerate(parts))


def greedy_by_topk(logits: Tensor) -> Tensor:
    if logits.ndim != 2:
        raise ValueError("one row of logits for each text, please")
    return logits.topk(1).indices[:, 0]


def greedy_by_max(logits: Tensor) -> Tensor:
    check_shape(logits)
    return logits.max(dim=1).indices


def sample_with_ties_kept(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    return drawn((kept(logits, top_k) / temperature).softmax(-1), generator)


def sample_by_gumbel(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    u = torch.rand(logits.shape, generator=generator).clamp(1e-7, 1 - 1e-7)
    return (kept(logits, top_k) / temperature - (-u.log()).log()).argmax(-1)


def sample_by_inverse_cdf(logits, temperature=1.0, top_k=None, generator=None):
    check_arguments(logits, temperature, top_k)
    weights = (kept(logits.double(), top_k) / temperature).softmax(-1)
    u = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)
    return (
        torch.searchsorted(weights.cumsum(-1), u, right=True)
        .squeeze(-1)
        .clamp(max=logits.shape[1] - 1)
    )


VARIANTS = [
    Variant("unflatten_and_cat", {"split_heads": split_by_unflatten, "merge_heads": merge_by_cat}),
    Variant("stack_and_permute", {"split_heads": split_by_stack, "merge_heads": merge_by_permute}),
    Variant("einsum_with_additive_mask", {"causal_attention": attention_by_einsum}),
    Variant("sdpa", {"causal_attention": attention_by_sdpa}),
    Variant("float64_inside", {"causal_attention": attention_in_float64}),
    Variant("loops", {"causal_attention": attention_by_loops}),
    Variant("exponentials_masked", {"causal_attention": attention_by_exponentials}),
    Variant("layer_in_two_steps", {"attention_layer": layer_in_two_steps}),
    Variant("layer_head_by_head", {"attention_layer": layer_head_by_head}),
    Variant("greedy_by_topk", {"greedy_next": greedy_by_topk}),
    Variant("greedy_by_max", {"greedy_next": greedy_by_max}),
    Variant("ties_kept", {"sample_next": sample_with_ties_kept}),
    Variant("gumbel", {"sample_next": sample_by_gumbel}),
    Variant("inverse_cdf", {"sample_next": sample_by_inverse_cdf}),
]
