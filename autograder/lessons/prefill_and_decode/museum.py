"""Known wrong answers to lesson 04, and correct ones in other styles."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from autograder.lessons.exhibit import Bug, Variant
from autograder.lessons.kv_cache.museum import forward_positions_restart, layer_with_is_causal
from course.bounds import check_between
from course.cache import CacheFull
from course.measure.latency import Latency, check_stamps
from course.minigpt import prefill_and_decode as reference
from course.minigpt.kv_cache import KVCache, causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next

# --- prefill -------------------------------------------------------------------------------------


def _room(cache, n):
    if len(cache) + n > cache.max_len:
        raise CacheFull("full")


def _door(model, prompt, chunk_size):
    """The given lines above the gap."""
    model.check_tokens(prompt)
    check_between("chunk_size", chunk_size, 1, 2**31)


def _prefill(model, prompt, cache, chunk_size, forward=forward_cached):
    _door(model, prompt, chunk_size)
    _room(cache, prompt.shape[1])
    return [forward(model, chunk, cache) for chunk in prompt.split(chunk_size, dim=1)]


def _forward_top_left(model, tokens, cache):
    positions = torch.arange(len(cache), len(cache) + tokens.shape[1])
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        x = x + layer_with_is_causal(block.attn, block.attn_norm(x), positions, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(tokens.shape[1])
    return model.lm_head(model.norm(x))


def prefill_masks_top_left(model, prompt, cache, chunk_size=256):
    return _prefill(model, prompt, cache, chunk_size, _forward_top_left)[-1][:, -1]


def prefill_restarts_positions(model, prompt, cache, chunk_size=256):
    return _prefill(model, prompt, cache, chunk_size, forward_positions_restart)[-1][:, -1]


def prefill_drops_the_rest(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    whole = prompt.shape[1] // chunk_size
    if whole == 0:
        return reference.prefill(model, prompt, cache, chunk_size)
    return _prefill(model, prompt[:, : whole * chunk_size], cache, chunk_size)[-1][:, -1]


def prefill_returns_the_first_chunk(model, prompt, cache, chunk_size=256):
    return _prefill(model, prompt, cache, chunk_size)[0][:, -1]


def prefill_returns_the_first_position(model, prompt, cache, chunk_size=256):
    return _prefill(model, prompt, cache, chunk_size)[-1][:, 0]


def prefill_returns_the_last_chunk(model, prompt, cache, chunk_size=256):
    return _prefill(model, prompt, cache, chunk_size)[-1]


def prefill_feeds_all_at_once(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    return reference.prefill(model, prompt, cache, prompt.shape[1])


def prefill_feeds_one_by_one(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    return reference.prefill(model, prompt, cache, 1)


def prefill_takes_the_number_of_chunks(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    _room(cache, prompt.shape[1])
    for chunk in prompt.chunk(chunk_size, dim=1):
        logits = forward_cached(model, chunk, cache)
    return logits[:, -1]


def prefill_forgets_the_past(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    cache.reset()
    return reference.prefill(model, prompt, cache, chunk_size)


def prefill_notices_on_its_way(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        logits = forward_cached(model, chunk, cache)
    return logits[:, -1]


def prefill_looks_at_the_prompt_alone(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    if prompt.shape[1] > cache.max_len:
        raise CacheFull("full")
    return prefill_notices_on_its_way(model, prompt, cache, chunk_size)


def prefill_leaves_a_place_empty(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    if len(cache) + prompt.shape[1] >= cache.max_len:
        raise CacheFull("full")
    return reference.prefill(model, prompt, cache, chunk_size)


def prefill_cuts_what_is_too_long(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    room = cache.max_len - len(cache)
    return reference.prefill(model, prompt[:, -room:], cache, chunk_size)


def prefill_keeps_its_own_tally(model, prompt, cache, chunk_size=256):
    _door(model, prompt, chunk_size)
    held = getattr(cache, "fed", 0)
    if held + prompt.shape[1] > cache.max_len:
        raise CacheFull("full")
    logits = reference.prefill(model, prompt, cache, chunk_size)
    cache.fed = held + prompt.shape[1]
    return logits


# --- stream --------------------------------------------------------------------------------------


def _column(logits):
    return greedy_next(logits[:, -1]).unsqueeze(1)


def stream_one_for_none(model, prompt, n_new, cache, chunk_size=256):
    token = greedy_next(reference.prefill(model, prompt, cache, chunk_size))
    yield token
    for _ in range(n_new - 1):
        token = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
        yield token


def stream_one_too_many(model, prompt, n_new, cache, chunk_size=256):
    return reference.stream(model, prompt, n_new + 1 if n_new else 0, cache, chunk_size)


def stream_gives_columns(model, prompt, n_new, cache, chunk_size=256):
    for token in reference.stream(model, prompt, n_new, cache, chunk_size):
        yield token.unsqueeze(1)


def stream_gives_plain_numbers(model, prompt, n_new, cache, chunk_size=256):
    for token in reference.stream(model, prompt, n_new, cache, chunk_size):
        yield int(token[0])


def stream_feeds_the_prompts_end_twice(model, prompt, n_new, cache, chunk_size=256):
    reference.prefill(model, prompt, cache, chunk_size)
    feed = prompt[:, -1:]
    for _ in range(n_new):
        feed = _column(forward_cached(model, feed, cache))
        yield feed[:, 0]


def stream_begins_with_the_prompts_end(model, prompt, n_new, cache, chunk_size=256):
    token = prompt[:, -1]
    for step, new in enumerate(reference.stream(model, prompt, n_new, cache, chunk_size)):
        yield token if step == 0 else new


def stream_keeps_feeding_the_first(model, prompt, n_new, cache, chunk_size=256):
    if n_new == 0:
        return
    first = greedy_next(reference.prefill(model, prompt, cache, chunk_size))
    yield first
    for _ in range(n_new - 1):
        yield greedy_next(forward_cached(model, first.unsqueeze(1), cache)[:, -1])


def stream_decodes_the_first_token(model, prompt, n_new, cache, chunk_size=256):
    if prompt.shape[1] > 1 and n_new:
        reference.prefill(model, prompt[:, :-1], cache, chunk_size)
    feed = prompt[:, -1:]
    for _ in range(n_new):
        feed = _column(forward_cached(model, feed, cache))
        yield feed[:, 0]


def stream_computes_all_first(model, prompt, n_new, cache, chunk_size=256):
    yield from list(reference.stream(model, prompt, n_new, cache, chunk_size))


def stream_works_before_it_is_asked(model, prompt, n_new, cache, chunk_size=256):
    if n_new == 0:
        return iter(())
    first = greedy_next(reference.prefill(model, prompt, cache, chunk_size))

    def rest(token):
        yield token
        for _ in range(n_new - 1):
            token = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
            yield token

    return rest(first)


def stream_one_ahead_of_the_reader(model, prompt, n_new, cache, chunk_size=256):
    if n_new == 0:
        return
    token = greedy_next(reference.prefill(model, prompt, cache, chunk_size))
    for left in reversed(range(n_new)):
        following = token
        if left:
            following = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
        yield token
        token = following


def stream_feeds_the_last(model, prompt, n_new, cache, chunk_size=256):
    if n_new == 0:
        return
    logits = reference.prefill(model, prompt, cache, chunk_size)
    for _ in range(n_new):
        token = greedy_next(logits)
        yield token
        logits = forward_cached(model, token.unsqueeze(1), cache)[:, -1]


def stream_in_a_cache_of_its_own(model, prompt, n_new, cache, chunk_size=256):
    own = KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)
    return reference.stream(model, prompt, n_new, own, chunk_size)


# --- latency_metrics -----------------------------------------------------------------------------


def _latency(start, stamps, *, gaps=None, percentile=np.percentile, mean=None, rate=None):
    check_stamps(start, stamps)
    ttft = stamps[0] - start
    gaps = np.diff(stamps) if gaps is None else gaps
    if len(gaps) == 0:
        return Latency(ttft, None, None, None, None)
    p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
    mean = gaps.mean() if mean is None else mean
    return Latency(ttft, mean, p50, p99, len(gaps) / gaps.sum() if rate is None else rate)


def latency_with_the_first_gap(start, stamps):
    gaps = np.diff([start, *stamps])
    if len(stamps) < 2:
        return reference.latency_metrics(start, stamps)
    return _latency(start, stamps, gaps=gaps, rate=reference.latency_metrics(start, stamps)[-1])


def latency_mean_over_everything(start, stamps):
    check_stamps(start, stamps)
    return _latency(start, stamps, mean=(stamps[-1] - start) / len(stamps))


def latency_mean_by_tokens(start, stamps):
    check_stamps(start, stamps)
    return _latency(start, stamps, mean=(stamps[-1] - stamps[0]) / len(stamps))


def latency_p99_is_the_longest(start, stamps):
    return _latency(start, stamps, percentile=lambda g, q: g.max() if q == 99 else np.median(g))


def latency_nearest_rank(start, stamps):
    def nearest(gaps, q):
        return np.sort(gaps)[math.ceil(q / 100 * len(gaps)) - 1]

    return _latency(start, stamps, percentile=nearest)


def latency_places_from_one(start, stamps):
    def by_m(gaps, q):
        gaps, place = np.sort(gaps), q / 100 * len(gaps)
        low = min(int(place), len(gaps) - 1)
        high = min(low + 1, len(gaps) - 1)
        return gaps[low] + (place - low) * (gaps[high] - gaps[low])

    return _latency(start, stamps, percentile=by_m)


def latency_unsorted(start, stamps):
    def unsorted(gaps, q):
        place = q / 100 * (len(gaps) - 1)
        low, high = math.floor(place), math.ceil(place)
        return gaps[low] + (place - low) * (gaps[high] - gaps[low])

    return _latency(start, stamps, percentile=unsorted)


def latency_median_is_the_mean(start, stamps):
    return _latency(
        start, stamps, percentile=lambda g, q: g.mean() if q == 50 else np.percentile(g, q)
    )


def latency_rate_with_prefill(start, stamps):
    check_stamps(start, stamps)
    return _latency(start, stamps, rate=len(stamps) / (stamps[-1] - start))


def latency_rate_of_all_tokens(start, stamps):
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return reference.latency_metrics(start, stamps)
    return _latency(start, stamps, rate=len(stamps) / (stamps[-1] - stamps[0]))


def latency_zero_for_no_gap(start, stamps):
    if len(stamps) == 1:
        return Latency(stamps[0] - start, 0.0, 0.0, 0.0, 0.0)
    return reference.latency_metrics(start, stamps)


def latency_in_float32(start, stamps):
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return reference.latency_metrics(start, stamps)
    gaps = torch.tensor(stamps).diff().double()
    p50, p99 = gaps.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    mean = gaps.mean().item()
    return Latency(stamps[0] - start, mean, p50, p99, 1 / mean if mean else math.inf)


def latency_ttft_to_the_second(start, stamps):
    found = reference.latency_metrics(start, stamps)
    return found._replace(ttft=stamps[min(1, len(stamps) - 1)] - start)


# --- pad_prompts ---------------------------------------------------------------------------------


def pad_on_the_right(prompts, pad_id):
    _, n_pads = reference.pad_prompts(prompts, pad_id)
    return pad_sequence(list(prompts), batch_first=True, padding_value=pad_id), n_pads


def pads_counted_by_id(prompts, pad_id):
    tokens, _ = reference.pad_prompts(prompts, pad_id)
    return tokens, (tokens == pad_id).sum(dim=1)


def lengths_for_pads(prompts, pad_id):
    tokens, n_pads = reference.pad_prompts(prompts, pad_id)
    return tokens, tokens.shape[1] - n_pads


def pads_all_zero(prompts, pad_id):
    tokens, n_pads = reference.pad_prompts(prompts, pad_id)
    pads = torch.arange(tokens.shape[1]) < n_pads.unsqueeze(1)
    return tokens.masked_fill(pads, 0), n_pads


def pads_one_column_more(prompts, pad_id):
    tokens, n_pads = reference.pad_prompts(prompts, pad_id)
    return F.pad(tokens, (1, 0), value=pad_id), n_pads + 1


def prompts_cut_to_the_shortest(prompts, pad_id):
    shortest = min(len(prompt) for prompt in prompts)
    return reference.pad_prompts([prompt[-shortest:] for prompt in prompts], pad_id)


# --- ragged_mask ---------------------------------------------------------------------------------


def _places(n_new, n_visible, n_pads):
    places = torch.arange(n_visible)
    own = places[n_visible - n_new :].unsqueeze(1)
    pads = n_pads.view(-1, 1, 1, 1)
    return places, own, pads


def mask_shows_pads(n_new, n_visible, n_pads):
    mask = causal_mask(n_new, n_visible)
    return mask.expand(len(n_pads), 1, n_new, n_visible)


def mask_swapped(n_new, n_visible, n_pads):
    return ~reference.ragged_mask(n_new, n_visible, n_pads)


def mask_shows_one_pad(n_new, n_visible, n_pads):
    return reference.ragged_mask(n_new, n_visible, (n_pads - 1).clamp(min=0))


def mask_hides_the_first_token(n_new, n_visible, n_pads):
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & ((places > pads) | (pads == 0)) | (places == own)


def mask_hides_the_right(n_new, n_visible, n_pads):
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & (places < n_visible - pads) | (places == own)


def mask_shows_the_future(n_new, n_visible, n_pads):
    places, own, pads = _places(n_new, n_visible, n_pads)
    return ((places >= pads) | (places == own)).expand(len(n_pads), 1, n_new, n_visible)


def mask_of_two_phases(n_new, n_visible, n_pads):
    places, own, pads = _places(n_new, n_visible, n_pads)
    if n_new == 1:
        return (places >= pads) & torch.ones(1, n_visible, dtype=torch.bool)
    triangle = torch.ones(n_new, n_visible, dtype=torch.bool).tril()
    return triangle & (places >= pads) | (places == own)


def mask_of_one_row(n_new, n_visible, n_pads):
    longest = n_pads.max().expand(len(n_pads))
    return reference.ragged_mask(n_new, n_visible, longest)


def mask_without_heads(n_new, n_visible, n_pads):
    return reference.ragged_mask(n_new, n_visible, n_pads)[:, 0]


def mask_of_pads_is_empty(n_new, n_visible, n_pads):
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & (places >= pads)


# --- ragged_positions ----------------------------------------------------------------------------


def positions_count_pads(n_new, n_visible, n_pads):
    return torch.arange(n_visible - n_new, n_visible).expand(len(n_pads), n_new)


def positions_count_pads_in_steps(n_new, n_visible, n_pads):
    if n_new < n_visible:
        return positions_count_pads(n_new, n_visible, n_pads)
    return reference.ragged_positions(n_new, n_visible, n_pads)


def positions_restart(n_new, n_visible, n_pads):
    return (torch.arange(n_new) - n_pads.unsqueeze(1)).clamp(min=0)


def positions_from_one(n_new, n_visible, n_pads):
    places = torch.arange(n_visible - n_new, n_visible)
    return (places - n_pads.unsqueeze(1) + 1).clamp(min=0)


def positions_below_zero(n_new, n_visible, n_pads):
    return torch.arange(n_visible - n_new, n_visible) - n_pads.unsqueeze(1)


def _bug(check, name, story, family, mistake, **answer):
    return Bug(name, story, f"prefill_and_decode.{check}", family, mistake, answer)


CHUNKS = "every_chunk_size_gives_the_same_logits"
ROOM = "too_long_a_prompt_changes_nothing"
TEXT = "stream_writes_the_uncached_text"
LAZY = "no_step_before_it_is_asked_for"
BACK = "rollback_equals_a_fresh_start"
LATENCY = "first_token_is_no_gap"
PADS = "pads_stand_on_the_left"
MASK = "pads_are_never_seen"
POSITIONS = "positions_count_own_tokens"
ALONE = "each_row_equals_itself_alone"

BUGS = [
    _bug(
        CHUNKS,
        "prefill_masks_top_left",
        "Each chunk is masked by a triangle at the left edge, as a whole prompt is.",
        "mask",
        "chunks whose mask stands at the left edge, as if each were the first",
        prefill=prefill_masks_top_left,
    ),
    _bug(
        CHUNKS,
        "prefill_restarts_positions",
        "Every chunk begins at position 0.",
        "position",
        "chunks whose positions each begin at the same number",
        prefill=prefill_restarts_positions,
    ),
    _bug(
        CHUNKS,
        "prefill_drops_the_rest",
        "P // chunk_size chunks: what is left over never enters.",
        "feeding",
        "a prompt whose last, shorter chunk is left out",
        prefill=prefill_drops_the_rest,
    ),
    _bug(
        CHUNKS,
        "prefill_returns_the_first_chunk",
        "The logits of the first chunk are kept, as a variable that is set once.",
        "choice",
        "logits of the first chunk, when all have been fed",
        prefill=prefill_returns_the_first_chunk,
    ),
    _bug(
        CHUNKS,
        "prefill_returns_the_first_position",
        "logits[:, 0] of the last chunk: right when that chunk has one token.",
        "choice",
        "logits of the first position of a chunk",
        prefill=prefill_returns_the_first_position,
    ),
    _bug(
        CHUNKS,
        "prefill_returns_the_last_chunk",
        "All logits of the last chunk come back.",
        "form",
        "logits of every position of the last chunk",
        prefill=prefill_returns_the_last_chunk,
    ),
    _bug(
        CHUNKS,
        "prefill_feeds_all_at_once",
        "chunk_size is taken and not used: the right logits, and everybody else waits.",
        "feeding",
        "a prompt that goes in whole, whatever chunk size was asked for",
        prefill=prefill_feeds_all_at_once,
    ),
    _bug(
        CHUNKS,
        "prefill_feeds_one_by_one",
        "Token after token, as in decode: every weight is read once for each of them.",
        "feeding",
        "a prompt that goes in token by token",
        prefill=prefill_feeds_one_by_one,
    ),
    _bug(
        CHUNKS,
        "prefill_takes_the_number_of_chunks",
        "Tensor.chunk for Tensor.split: chunk_size is the number of chunks.",
        "feeding",
        "a chunk size that is taken for the number of chunks",
        prefill=prefill_takes_the_number_of_chunks,
    ),
    _bug(
        ROOM,
        "prefill_notices_on_its_way",
        "The cache refuses the last chunk, and the ones before it stay.",
        "capacity",
        "a prefill that notices only on its way that the room ends",
        prefill=prefill_notices_on_its_way,
    ),
    _bug(
        ROOM,
        "prefill_looks_at_the_prompt_alone",
        "P against max_len: what is held already is not counted.",
        "capacity",
        "a prefill that looks for room as if the cache were empty",
        prefill=prefill_looks_at_the_prompt_alone,
    ),
    _bug(
        ROOM,
        "prefill_leaves_a_place_empty",
        "Greater or equal: a prompt that just fits is refused.",
        "capacity",
        "a prefill that never fills the last place",
        prefill=prefill_leaves_a_place_empty,
    ),
    _bug(
        ROOM,
        "prefill_cuts_what_is_too_long",
        "What does not fit is cut off at the front, without a word.",
        "capacity",
        "a prefill that cuts off what does not fit, without a word",
        prefill=prefill_cuts_what_is_too_long,
    ),
    _bug(
        ROOM,
        "prefill_forgets_the_past",
        "reset() before the first chunk, to be safe: the conversation so far is gone.",
        "state",
        "a prefill that clears the cache first",
        prefill=prefill_forgets_the_past,
    ),
    _bug(
        TEXT,
        "stream_one_for_none",
        "The first token is yielded before anybody looks at n_new = 0.",
        "off by one",
        "a stream that gives a token when none was asked for",
        stream=stream_one_for_none,
    ),
    _bug(
        TEXT,
        "stream_one_too_many",
        "One token from the prefill, and n_new more from the loop.",
        "off by one",
        "a stream that gives the first token on top of those that were asked for",
        stream=stream_one_too_many,
    ),
    _bug(
        TEXT,
        "stream_gives_columns",
        "What is fed next, (B, 1), is also what comes out.",
        "form",
        "a stream of columns, one row of the batch below the other",
        stream=stream_gives_columns,
    ),
    _bug(
        TEXT,
        "stream_gives_plain_numbers",
        "token[0] as a number: one user, and the batch is forgotten.",
        "form",
        "a stream of the first batch row alone",
        stream=stream_gives_plain_numbers,
    ),
    _bug(
        TEXT,
        "stream_feeds_the_prompts_end_twice",
        "After the prefill its last token is fed once more to start the loop.",
        "feeding",
        "a stream that feeds the last token of the prompt a second time",
        stream=stream_feeds_the_prompts_end_twice,
    ),
    _bug(
        TEXT,
        "stream_begins_with_the_prompts_end",
        "The loop yields before it chooses: first comes a token of the prompt.",
        "off by one",
        "a stream that begins with the last token of the prompt",
        stream=stream_begins_with_the_prompts_end,
    ),
    _bug(
        TEXT,
        "stream_keeps_feeding_the_first",
        "The variable that is fed is not the one that was just chosen.",
        "feeding",
        "a stream that feeds its first token again and again",
        stream=stream_keeps_feeding_the_first,
    ),
    _bug(
        LAZY,
        "stream_decodes_the_first_token",
        "The prompt without its end is prefilled, and a step chooses the first token.",
        "feeding",
        "a stream whose first token comes from a decode step",
        stream=stream_decodes_the_first_token,
    ),
    _bug(
        LAZY,
        "stream_computes_all_first",
        "A list is filled and then yielded: it streams, but only in name.",
        "cost",
        "a stream that computes everything before its first token",
        stream=stream_computes_all_first,
    ),
    _bug(
        LAZY,
        "stream_works_before_it_is_asked",
        "The prefill runs when the stream is made, not when a token is asked for.",
        "cost",
        "a stream that prefills before a token is asked for",
        stream=stream_works_before_it_is_asked,
    ),
    _bug(
        LAZY,
        "stream_one_ahead_of_the_reader",
        "The next token is computed before this one is given out.",
        "cost",
        "a stream that computes one token ahead of its reader",
        stream=stream_one_ahead_of_the_reader,
    ),
    _bug(
        LAZY,
        "stream_feeds_the_last",
        "The loop ends with a forward pass whose logits nobody reads.",
        "cost",
        "a stream that also feeds its last token",
        stream=stream_feeds_the_last,
    ),
    _bug(
        BACK,
        "prefill_keeps_its_own_tally",
        "The tokens held are counted beside the cache, and truncate() does not know.",
        "state",
        "a prefill with a tally of its own of what the cache holds",
        prefill=prefill_keeps_its_own_tally,
    ),
    _bug(
        BACK,
        "stream_in_a_cache_of_its_own",
        "The cache that is given is not the one that is used.",
        "state",
        "a stream that does not use the cache that it was given",
        stream=stream_in_a_cache_of_its_own,
    ),
    _bug(
        LATENCY,
        "latency_with_the_first_gap",
        "The gaps are counted from the start: TTFT is one of them.",
        "formula",
        "gaps among which is the wait for the first token",
        latency_metrics=latency_with_the_first_gap,
    ),
    _bug(
        LATENCY,
        "latency_mean_over_everything",
        "Total time by tokens: the prefill is spread over all of them.",
        "formula",
        "a mean gap that is the whole time divided by the tokens",
        latency_metrics=latency_mean_over_everything,
    ),
    _bug(
        LATENCY,
        "latency_mean_by_tokens",
        "n tokens have n - 1 gaps, and the sum is divided by n.",
        "off by one",
        "a mean over as many gaps as there are tokens",
        latency_metrics=latency_mean_by_tokens,
    ),
    _bug(
        LATENCY,
        "latency_p99_is_the_longest",
        "With few gaps the longest is near p99, and with many it is not.",
        "formula",
        "a 99th percentile that is simply the longest gap",
        latency_metrics=latency_p99_is_the_longest,
    ),
    _bug(
        LATENCY,
        "latency_nearest_rank",
        "The percentile is one of the gaps: the nearest-rank rule.",
        "formula",
        "percentiles that are always one of the gaps, with no line between two",
        latency_metrics=latency_nearest_rank,
    ),
    _bug(
        LATENCY,
        "latency_places_from_one",
        "q · m in place of q · (m - 1).",
        "off by one",
        "percentiles looked up one place too far",
        latency_metrics=latency_places_from_one,
    ),
    _bug(
        LATENCY,
        "latency_unsorted",
        "The gaps are not sorted before a place among them is taken.",
        "formula",
        "percentiles of gaps in the order in which they came",
        latency_metrics=latency_unsorted,
    ),
    _bug(
        LATENCY,
        "latency_median_is_the_mean",
        "p50 is taken for the mean.",
        "formula",
        "a median that is the mean",
        latency_metrics=latency_median_is_the_mean,
    ),
    _bug(
        LATENCY,
        "latency_rate_with_prefill",
        "All tokens by all seconds: the rate falls as the prompt grows.",
        "formula",
        "a rate whose seconds include the prefill",
        latency_metrics=latency_rate_with_prefill,
    ),
    _bug(
        LATENCY,
        "latency_rate_of_all_tokens",
        "The seconds of the decode phase, and the tokens of both.",
        "off by one",
        "a rate that counts the first token among those of the decode phase",
        latency_metrics=latency_rate_of_all_tokens,
    ),
    _bug(
        LATENCY,
        "latency_zero_for_no_gap",
        "One token, so every gap is 0: the best latency of all.",
        "formula",
        "a latency of zero where there is no gap at all",
        latency_metrics=latency_zero_for_no_gap,
    ),
    _bug(
        LATENCY,
        "latency_in_float32",
        "torch.tensor(stamps) is float32: milliseconds of a clock of days are lost.",
        "form",
        "gaps between stamps that were rounded to float32",
        latency_metrics=latency_in_float32,
    ),
    _bug(
        LATENCY,
        "latency_ttft_to_the_second",
        "The stamp at index 1 is taken for the first.",
        "off by one",
        "a time to first token that ends at the second",
        latency_metrics=latency_ttft_to_the_second,
    ),
    _bug(
        PADS,
        "pad_on_the_right",
        "pad_sequence as it is: the prompts end in different columns.",
        "position",
        "pads that stand behind the prompts",
        pad_prompts=pad_on_the_right,
    ),
    _bug(
        PADS,
        "pads_counted_by_id",
        "Every pad_id in the batch is counted, those of the prompts too.",
        "formula",
        "pads that are counted by their id, which may also be a token",
        pad_prompts=pads_counted_by_id,
    ),
    _bug(
        PADS,
        "lengths_for_pads",
        "The lengths of the prompts come back in place of the pads.",
        "formula",
        "a count of tokens where pads were asked for",
        pad_prompts=lengths_for_pads,
    ),
    _bug(
        PADS,
        "pads_all_zero",
        "torch.zeros to begin with, whatever pad_id is.",
        "feeding",
        "pads of id zero, whatever was asked for",
        pad_prompts=pads_all_zero,
    ),
    _bug(
        PADS,
        "pads_one_column_more",
        "One column too many, so that even the longest prompt has a pad.",
        "off by one",
        "a batch with a pad before every prompt, the longest too",
        pad_prompts=pads_one_column_more,
    ),
    _bug(
        PADS,
        "prompts_cut_to_the_shortest",
        "zip, or a stack, needs one length: the shortest.",
        "feeding",
        "prompts that were cut to one length",
        pad_prompts=prompts_cut_to_the_shortest,
    ),
    _bug(
        MASK,
        "mask_shows_pads",
        "Causal for every row alike: pads are keys like any others.",
        "mask",
        "a mask that lets tokens see pads",
        ragged_mask=mask_shows_pads,
    ),
    _bug(
        MASK,
        "mask_swapped",
        "True means hidden, as in some other library.",
        "mask",
        "a mask in which True means hidden",
        ragged_mask=mask_swapped,
    ),
    _bug(
        MASK,
        "mask_shows_one_pad",
        "One pad too few is hidden.",
        "off by one",
        "a mask that hides one pad too few",
        ragged_mask=mask_shows_one_pad,
    ),
    _bug(
        MASK,
        "mask_hides_the_first_token",
        "Greater in place of greater or equal: each text loses its first token.",
        "off by one",
        "a mask that hides the first token of a text with pads",
        ragged_mask=mask_hides_the_first_token,
    ),
    _bug(
        MASK,
        "mask_hides_the_right",
        "The pads are looked for at the right end.",
        "mask",
        "a mask that hides the right end, as if the pads were there",
        ragged_mask=mask_hides_the_right,
    ),
    _bug(
        MASK,
        "mask_shows_the_future",
        "The pads are hidden and the triangle is forgotten.",
        "mask",
        "a mask that hides pads and shows the future",
        ragged_mask=mask_shows_the_future,
    ),
    _bug(
        MASK,
        "mask_of_two_phases",
        "A triangle for the prefill, everything for a step, and nobody thought of chunks.",
        "mask",
        "a mask for whole prompts and single tokens, and for no chunk between",
        ragged_mask=mask_of_two_phases,
    ),
    _bug(
        MASK,
        "mask_of_one_row",
        "One mask for all rows, by the shortest prompt.",
        "mask",
        "one mask for all rows",
        ragged_mask=mask_of_one_row,
    ),
    _bug(
        MASK,
        "mask_without_heads",
        "(B, T, S): the axis of the heads is missing.",
        "form",
        "a mask that has no axis for the heads",
        ragged_mask=mask_without_heads,
    ),
    _bug(
        POSITIONS,
        "positions_count_pads",
        "The place in the row is taken for the position. Rotary forgives it; learned positions do not.",
        "position",
        "positions that count the pads, too",
        ragged_positions=positions_count_pads,
    ),
    _bug(
        POSITIONS,
        "positions_count_pads_in_steps",
        "The prefill counts tokens, and then len(cache) is the position: a jump by the pads.",
        "position",
        "positions that jump by the number of pads after the prefill",
        ragged_positions=positions_count_pads_in_steps,
    ),
    _bug(
        POSITIONS,
        "positions_restart",
        "arange(T) less the pads: every call starts anew.",
        "position",
        "positions that start anew in every call",
        ragged_positions=positions_restart,
    ),
    _bug(
        POSITIONS,
        "positions_from_one",
        "The first token has position 1.",
        "off by one",
        "positions that begin at one",
        ragged_positions=positions_from_one,
    ),
    _bug(
        POSITIONS,
        "positions_below_zero",
        "The pads get negative positions, and a negative index reads the table from its end.",
        "position",
        "pads with negative positions",
        ragged_positions=positions_below_zero,
    ),
    _bug(
        ALONE,
        "mask_of_pads_is_empty",
        "No pad sees anything: NaN, and by the next layer for everyone.",
        "mask",
        "a mask in which pads see nothing at all, and whose NaN then reach the tokens",
        ragged_mask=mask_of_pads_is_empty,
    ),
]

# --- correct answers in other styles -------------------------------------------------------------


def prefill_by_slices(model, prompt, cache, chunk_size=256):
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size {chunk_size}")
    if cache.max_len - len(cache) < prompt.shape[1]:
        raise CacheFull("no room")
    last = None
    for begin in range(0, prompt.shape[1], chunk_size):
        last = forward_cached(model, prompt[:, begin : begin + chunk_size], cache)[:, -1, :]
    return last


def prefill_by_while(model, prompt, cache, chunk_size=256):
    model.check_tokens(prompt)
    if chunk_size < 1:
        raise ValueError(chunk_size)
    _room(cache, prompt.shape[1])
    begin, done = len(cache), 0
    while done < prompt.shape[1]:
        out = forward_cached(
            model, prompt.narrow(1, done, min(chunk_size, prompt.shape[1] - done)), cache
        )
        done = len(cache) - begin
    return out.select(1, out.shape[1] - 1)


def prefill_by_recursion(model, prompt, cache, chunk_size=256):
    if chunk_size < 1:
        raise ValueError(chunk_size)
    _room(cache, prompt.shape[1])
    logits = forward_cached(model, prompt[:, :chunk_size], cache)
    if prompt.shape[1] > chunk_size:
        return prefill_by_recursion(model, prompt[:, chunk_size:], cache, chunk_size)
    return logits[:, -1]


def prefill_with_all_logits(model, prompt, cache, chunk_size=256):
    return torch.cat(_prefill(model, prompt, cache, chunk_size), dim=1)[:, -1]


def stream_by_feeding(model, prompt, n_new, cache, chunk_size=256):
    logits = None
    for step in range(n_new):
        if step == 0:
            logits = reference.prefill(model, prompt, cache, chunk_size)
        else:
            logits = forward_cached(model, feed, cache)[:, -1]  # noqa: F821
        feed = logits.argmax(dim=-1, keepdim=True)
        yield feed.squeeze(1)


class Streaming:
    """An iterator that is no generator."""

    def __init__(self, model, prompt, n_new, cache, chunk_size):
        self.model, self.feed, self.left, self.cache = model, prompt, n_new, cache
        self.size = chunk_size

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        token = reference.prefill(self.model, self.feed, self.cache, self.size).argmax(dim=-1)
        self.feed = token[:, None]
        return token


def stream_by_class(model, prompt, n_new, cache, chunk_size=256):
    return Streaming(model, prompt, n_new, cache, chunk_size)


def stream_by_map(model, prompt, n_new, cache, chunk_size=256):
    state = {"feed": prompt}

    def step(_):
        logits = reference.prefill(model, state["feed"], cache, chunk_size)
        state["feed"] = logits.topk(1, dim=-1).indices
        return state["feed"].reshape(-1)

    return map(step, range(n_new))


def stream_by_yield_from(model, prompt, n_new, cache, chunk_size=256):
    def steps(token, left):
        yield token
        if left:
            logits = forward_cached(model, token.reshape(-1, 1), cache)
            yield from steps(logits[:, -1].max(dim=-1).indices, left - 1)

    if n_new > 0:
        yield from steps(
            greedy_next(reference.prefill(model, prompt, cache, chunk_size)), n_new - 1
        )


def latency_in_plain_python(start, stamps):
    check_stamps(start, stamps)
    gaps = sorted(b - a for a, b in pairwise(stamps))
    if not gaps:
        return Latency(stamps[0] - start, None, None, None, None)

    def at(share):
        place = share * (len(gaps) - 1)
        low = math.floor(place)
        return gaps[low] + (place - low) * (gaps[math.ceil(place)] - gaps[low])

    decode = stamps[-1] - stamps[0]
    return Latency(stamps[0] - start, decode / len(gaps), at(0.5), at(0.99), len(gaps) / decode)


def latency_by_torch(start, stamps):
    check_stamps(start, stamps)
    times = torch.tensor(stamps, dtype=torch.float64)
    gaps = times[1:] - times[:-1]
    if not gaps.numel():
        return Latency(float(times[0]) - start, *[None] * 4)
    p50, p99 = gaps.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    return Latency(float(times[0] - start), gaps.mean().item(), p50, p99, 1 / gaps.mean().item())


def latency_by_statistics(start, stamps):
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return Latency(stamps[0] - start, None, None, None, None)
    gaps = [late - early for early, late in pairwise(stamps)]
    p99 = gaps[0] if len(gaps) == 1 else statistics.quantiles(gaps, n=100, method="inclusive")[98]
    mean = statistics.fmean(gaps)
    return Latency(stamps[0] - start, mean, statistics.median(gaps), p99, 1 / mean)


def latency_from_zero(start, stamps):
    check_stamps(start, stamps)
    times = np.asarray(stamps) - start
    if times.size == 1:
        return Latency(times[0], None, None, None, None)
    gaps = np.sort(times[1:] - times[:-1])
    places = np.array([0.5, 0.99]) * (gaps.size - 1)
    p50, p99 = np.interp(places, np.arange(gaps.size), gaps)
    return Latency(times[0], np.mean(gaps), p50, p99, (times.size - 1) / (times[-1] - times[0]))


def pad_by_cat(prompts, pad_id):
    T = max(map(len, prompts))
    rows = [torch.cat([torch.full((T - len(p),), pad_id), p]) for p in prompts]
    return torch.stack(rows), torch.tensor([T - len(p) for p in prompts])


def pad_by_functional(prompts, pad_id):
    T = max(prompt.shape[0] for prompt in prompts)
    n_pads = [T - prompt.shape[0] for prompt in prompts]
    rows = [F.pad(p, (n, 0), value=pad_id) for p, n in zip(prompts, n_pads, strict=True)]
    return torch.vstack(rows), torch.tensor(n_pads, dtype=torch.long)


def pad_by_flipping(prompts, pad_id):
    turned = pad_sequence([p.flip(0) for p in prompts], batch_first=True, padding_value=pad_id)
    lengths = torch.tensor([len(p) for p in prompts])
    return turned.flip(1), turned.shape[1] - lengths


def pad_by_lists(prompts, pad_id):
    rows = [prompt.tolist() for prompt in prompts]
    T = max(len(row) for row in rows)
    n_pads = [T - len(row) for row in rows]
    filled = [[pad_id] * n + row for n, row in zip(n_pads, rows, strict=True)]
    return torch.tensor(filled), torch.tensor(n_pads)


def mask_by_loops(n_new, n_visible, n_pads):
    mask = torch.zeros(len(n_pads), 1, n_new, n_visible, dtype=torch.bool)
    for b, pads in enumerate(n_pads.tolist()):
        for t in range(n_new):
            own = n_visible - n_new + t
            for s in range(min(pads, own), own + 1):
                mask[b, 0, t, s] = s >= pads or own < pads
    return mask


def mask_where_pads_see_everything(n_new, n_visible, n_pads):
    places = torch.arange(n_visible).reshape(1, 1, 1, -1)
    own = places[..., n_visible - n_new :].transpose(2, 3)
    pads = n_pads.reshape(-1, 1, 1, 1)
    return torch.where(own < pads, True, (places <= own) & (places >= pads))


def mask_where_pads_see_pads(n_new, n_visible, n_pads):
    places = torch.arange(n_visible)
    pad = places[None] < n_pads[:, None]  # (B, S)
    same_kind = pad[:, -n_new:, None] == pad[:, None, :]  # (B, T, S)
    return (same_kind & causal_mask(n_new, n_visible)).unsqueeze(1)


def mask_by_stacking(n_new, n_visible, n_pads):
    rows = []
    for pads in n_pads.tolist():
        row = torch.ones(n_new, n_visible, dtype=torch.bool).tril(n_visible - n_new)
        row[:, :pads] = False
        row[~row.any(dim=1), 0] = True
        rows.append(row)
    return torch.stack(rows).unsqueeze(1)


def positions_by_loops(n_new, n_visible, n_pads):
    first = n_visible - n_new
    return torch.tensor(
        [[max(first + t - pads, 0) for t in range(n_new)] for pads in n_pads.tolist()]
    )


def positions_by_counting(n_new, n_visible, n_pads):
    own = torch.arange(n_visible) >= n_pads[:, None]  # (B, S)
    return (own.cumsum(dim=1) - 1).clamp_min(0)[:, -n_new:]


def positions_with_pads_at_one(n_new, n_visible, n_pads):
    positions = torch.arange(n_visible).repeat(len(n_pads), 1) - n_pads.reshape(-1, 1)
    positions = positions.masked_fill(positions < 0, 1 if n_visible > 1 else 0)
    return positions[:, n_visible - n_new :]


def positions_by_relu(n_new, n_visible, n_pads):
    return torch.relu(torch.arange(n_new)[None, :] + (n_visible - n_new - n_pads)[:, None])


VARIANTS = [
    Variant("slices", {"prefill": prefill_by_slices, "stream": stream_by_feeding}),
    Variant("while", {"prefill": prefill_by_while, "latency_metrics": latency_in_plain_python}),
    Variant("recursion", {"prefill": prefill_by_recursion, "pad_prompts": pad_by_cat}),
    Variant("all_logits", {"prefill": prefill_with_all_logits}),
    Variant("class", {"stream": stream_by_class, "latency_metrics": latency_by_torch}),
    Variant("map", {"stream": stream_by_map, "latency_metrics": latency_by_statistics}),
    Variant("yield_from", {"stream": stream_by_yield_from, "latency_metrics": latency_from_zero}),
    Variant(
        "loops",
        {
            "pad_prompts": pad_by_functional,
            "ragged_mask": mask_by_loops,
            "ragged_positions": positions_by_loops,
        },
    ),
    Variant(
        "pads_see_everything",
        {
            "pad_prompts": pad_by_flipping,
            "ragged_mask": mask_where_pads_see_everything,
            "ragged_positions": positions_by_counting,
        },
    ),
    Variant(
        "pads_see_pads",
        {
            "pad_prompts": pad_by_lists,
            "ragged_mask": mask_where_pads_see_pads,
            "ragged_positions": positions_with_pads_at_one,
        },
    ),
    Variant("stacked", {"ragged_mask": mask_by_stacking, "ragged_positions": positions_by_relu}),
]
