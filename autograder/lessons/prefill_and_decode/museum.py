"""Known wrong answers to lesson 04."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from autograder.lessons.exhibits import Museum
from autograder.lessons.kv_cache.museum import forward_positions_restart, layer_with_is_causal
from course.bounds import check_between
from course.cache import CacheFull
from course.measure.latency import Latency, check_stamps
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import KVCache, causal_mask, forward_cached
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.prefill_and_decode import prefill

MUSEUM = Museum("prefill_and_decode")


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


bug, patch = MUSEUM.section("prefill", check="every_chunk_size_gives_the_same_logits")


@bug("mask", "chunks whose mask stands at the left edge, as if each were the first")
def prefill_masks_top_left(model, prompt, cache, chunk_size=256):
    """Each chunk is masked by a triangle at the left edge, as a whole prompt is."""
    return _prefill(model, prompt, cache, chunk_size, _forward_top_left)[-1][:, -1]


@bug("position", "chunks whose positions each begin at the same number")
def prefill_restarts_positions(model, prompt, cache, chunk_size=256):
    """Every chunk begins at position 0."""
    return _prefill(model, prompt, cache, chunk_size, forward_positions_restart)[-1][:, -1]


@bug("feeding", "a prompt whose last, shorter chunk is left out")
def prefill_drops_the_rest(model, prompt, cache, chunk_size=256):
    """P // chunk_size chunks: what is left over never enters."""
    _door(model, prompt, chunk_size)
    whole = prompt.shape[1] // chunk_size
    if whole == 0:
        return right.prefill(model, prompt, cache, chunk_size)
    return _prefill(model, prompt[:, : whole * chunk_size], cache, chunk_size)[-1][:, -1]


@bug("choice", "logits of the first chunk, when all have been fed")
def prefill_returns_the_first_chunk(model, prompt, cache, chunk_size=256):
    """The logits of the first chunk are kept, as a variable that is set once."""
    return _prefill(model, prompt, cache, chunk_size)[0][:, -1]


@bug("choice", "logits of the first position of a chunk")
def prefill_returns_the_first_position(model, prompt, cache, chunk_size=256):
    """logits[:, 0] of the last chunk: right when that chunk has one token."""
    return _prefill(model, prompt, cache, chunk_size)[-1][:, 0]


@bug("form", "logits of every position of the last chunk")
def prefill_returns_the_last_chunk(model, prompt, cache, chunk_size=256):
    """All logits of the last chunk come back."""
    return _prefill(model, prompt, cache, chunk_size)[-1]


@bug("feeding", "a prompt that goes in whole, whatever chunk size was asked for")
def prefill_feeds_all_at_once(model, prompt, cache, chunk_size=256):
    """chunk_size is taken and not used: the right logits, and everybody else waits."""
    _door(model, prompt, chunk_size)
    return right.prefill(model, prompt, cache, prompt.shape[1])


@bug("feeding", "a prompt that goes in token by token")
def prefill_feeds_one_by_one(model, prompt, cache, chunk_size=256):
    """Token after token, as in decode: every weight is read once for each of them."""
    _door(model, prompt, chunk_size)
    return right.prefill(model, prompt, cache, 1)


@bug("feeding", "a chunk size that is taken for the number of chunks")
def prefill_takes_the_number_of_chunks(model, prompt, cache, chunk_size=256):
    """Tensor.chunk for Tensor.split: chunk_size is the number of chunks."""
    _door(model, prompt, chunk_size)
    _room(cache, prompt.shape[1])
    for chunk in prompt.chunk(chunk_size, dim=1):
        logits = forward_cached(model, chunk, cache)
    return logits[:, -1]


bug, patch = MUSEUM.section("prefill", check="too_long_a_prompt_changes_nothing")


@bug("capacity", "a prefill that notices only on its way that the room ends")
def prefill_notices_on_its_way(model, prompt, cache, chunk_size=256):
    """The cache refuses the last chunk, and the ones before it stay."""
    _door(model, prompt, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        logits = forward_cached(model, chunk, cache)
    return logits[:, -1]


@bug("capacity", "a prefill that looks for room as if the cache were empty")
def prefill_looks_at_the_prompt_alone(model, prompt, cache, chunk_size=256):
    """P against max_len: what is held already is not counted."""
    _door(model, prompt, chunk_size)
    if prompt.shape[1] > cache.max_len:
        raise CacheFull("full")
    return prefill_notices_on_its_way(model, prompt, cache, chunk_size)


@bug("capacity", "a prefill that never fills the last place")
def prefill_leaves_a_place_empty(model, prompt, cache, chunk_size=256):
    """Greater or equal: a prompt that just fits is refused."""
    _door(model, prompt, chunk_size)
    if len(cache) + prompt.shape[1] >= cache.max_len:
        raise CacheFull("full")
    return right.prefill(model, prompt, cache, chunk_size)


@bug("capacity", "a prefill that cuts off what does not fit, without a word")
def prefill_cuts_what_is_too_long(model, prompt, cache, chunk_size=256):
    """What does not fit is cut off at the front, without a word."""
    _door(model, prompt, chunk_size)
    room = cache.max_len - len(cache)
    return right.prefill(model, prompt[:, -room:], cache, chunk_size)


@bug("state", "a prefill that clears the cache first")
def prefill_forgets_the_past(model, prompt, cache, chunk_size=256):
    """reset() before the first chunk, to be safe: the conversation so far is gone."""
    _door(model, prompt, chunk_size)
    cache.reset()
    return right.prefill(model, prompt, cache, chunk_size)


bug, patch = MUSEUM.section("stream", check="stream_writes_the_uncached_text")


@bug("off by one", "a stream that gives a token when none was asked for")
def stream_one_for_none(model, prompt, n_new, cache, chunk_size=256):
    """The first token is yielded before anybody looks at n_new = 0."""
    token = greedy_next(prefill(model, prompt, cache, chunk_size))
    yield token
    for _ in range(n_new - 1):
        token = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
        yield token


@bug("off by one", "a stream that gives the first token on top of those that were asked for")
def stream_one_too_many(model, prompt, n_new, cache, chunk_size=256):
    """One token from the prefill, and n_new more from the loop."""
    return right.stream(model, prompt, n_new + 1 if n_new else 0, cache, chunk_size)


@bug("form", "a stream of columns, one row of the batch below the other")
def stream_gives_columns(model, prompt, n_new, cache, chunk_size=256):
    """What is fed next, (B, 1), is also what comes out."""
    for token in right.stream(model, prompt, n_new, cache, chunk_size):
        yield token.unsqueeze(1)


@bug("form", "a stream of the first batch row alone")
def stream_gives_plain_numbers(model, prompt, n_new, cache, chunk_size=256):
    """token[0] as a number: one user, and the batch is forgotten."""
    for token in right.stream(model, prompt, n_new, cache, chunk_size):
        yield int(token[0])


def _column(logits):
    return greedy_next(logits[:, -1]).unsqueeze(1)


@bug("feeding", "a stream that feeds the last token of the prompt a second time")
def stream_feeds_the_prompts_end_twice(model, prompt, n_new, cache, chunk_size=256):
    """After the prefill its last token is fed once more to start the loop."""
    prefill(model, prompt, cache, chunk_size)
    feed = prompt[:, -1:]
    for _ in range(n_new):
        feed = _column(forward_cached(model, feed, cache))
        yield feed[:, 0]


@bug("off by one", "a stream that begins with the last token of the prompt")
def stream_begins_with_the_prompts_end(model, prompt, n_new, cache, chunk_size=256):
    """The loop yields before it chooses: first comes a token of the prompt."""
    token = prompt[:, -1]
    for step, new in enumerate(right.stream(model, prompt, n_new, cache, chunk_size)):
        yield token if step == 0 else new


@bug("feeding", "a stream that feeds its first token again and again")
def stream_keeps_feeding_the_first(model, prompt, n_new, cache, chunk_size=256):
    """The variable that is fed is not the one that was just chosen."""
    if n_new == 0:
        return
    first = greedy_next(prefill(model, prompt, cache, chunk_size))
    yield first
    for _ in range(n_new - 1):
        yield greedy_next(forward_cached(model, first.unsqueeze(1), cache)[:, -1])


bug, patch = MUSEUM.section("stream", check="no_step_before_it_is_asked_for")


@bug("feeding", "a stream whose first token comes from a decode step")
def stream_decodes_the_first_token(model, prompt, n_new, cache, chunk_size=256):
    """The prompt without its end is prefilled, and a step chooses the first token."""
    if prompt.shape[1] > 1 and n_new:
        prefill(model, prompt[:, :-1], cache, chunk_size)
    feed = prompt[:, -1:]
    for _ in range(n_new):
        feed = _column(forward_cached(model, feed, cache))
        yield feed[:, 0]


@bug("cost", "a stream that computes everything before its first token")
def stream_computes_all_first(model, prompt, n_new, cache, chunk_size=256):
    """A list is filled and then yielded: it streams, but only in name."""
    yield from list(right.stream(model, prompt, n_new, cache, chunk_size))


@bug("cost", "a stream that prefills before a token is asked for")
def stream_works_before_it_is_asked(model, prompt, n_new, cache, chunk_size=256):
    """The prefill runs when the stream is made, not when a token is asked for."""
    if n_new == 0:
        return iter(())
    first = greedy_next(prefill(model, prompt, cache, chunk_size))

    def rest(token):
        yield token
        for _ in range(n_new - 1):
            token = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
            yield token

    return rest(first)


@bug("cost", "a stream that computes one token ahead of its reader")
def stream_one_ahead_of_the_reader(model, prompt, n_new, cache, chunk_size=256):
    """The next token is computed before this one is given out."""
    if n_new == 0:
        return
    token = greedy_next(prefill(model, prompt, cache, chunk_size))
    for left in reversed(range(n_new)):
        following = token
        if left:
            following = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
        yield token
        token = following


@bug("cost", "a stream that also feeds its last token")
def stream_feeds_the_last(model, prompt, n_new, cache, chunk_size=256):
    """The loop ends with a forward pass whose logits nobody reads."""
    if n_new == 0:
        return
    logits = prefill(model, prompt, cache, chunk_size)
    for _ in range(n_new):
        token = greedy_next(logits)
        yield token
        logits = forward_cached(model, token.unsqueeze(1), cache)[:, -1]


bug, patch = MUSEUM.section("prefill", check="rollback_equals_a_fresh_start")


@bug("state", "a prefill with a tally of its own of what the cache holds")
def prefill_keeps_its_own_tally(model, prompt, cache, chunk_size=256):
    """The tokens held are counted beside the cache, and truncate() does not know."""
    _door(model, prompt, chunk_size)
    held = getattr(cache, "fed", 0)
    if held + prompt.shape[1] > cache.max_len:
        raise CacheFull("full")
    logits = right.prefill(model, prompt, cache, chunk_size)
    cache.fed = held + prompt.shape[1]
    return logits


bug, patch = MUSEUM.section("stream", check="rollback_equals_a_fresh_start")


@bug("state", "a stream that does not use the cache that it was given")
def stream_in_a_cache_of_its_own(model, prompt, n_new, cache, chunk_size=256):
    """The cache that is given is not the one that is used."""
    own = KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)
    return right.stream(model, prompt, n_new, own, chunk_size)


def _latency(start, stamps, *, gaps=None, percentile=np.percentile, mean=None, rate=None):
    check_stamps(start, stamps)
    ttft = stamps[0] - start
    gaps = np.diff(stamps) if gaps is None else gaps
    if len(gaps) == 0:
        return Latency(ttft, None, None, None, None)
    p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
    mean = gaps.mean() if mean is None else mean
    return Latency(ttft, mean, p50, p99, len(gaps) / gaps.sum() if rate is None else rate)


bug, patch = MUSEUM.section("latency_metrics", check="first_token_is_no_gap")


@bug("formula", "gaps among which is the wait for the first token")
def latency_with_the_first_gap(start, stamps):
    """The gaps are counted from the start: TTFT is one of them."""
    gaps = np.diff([start, *stamps])
    if len(stamps) < 2:
        return right.latency_metrics(start, stamps)
    return _latency(start, stamps, gaps=gaps, rate=right.latency_metrics(start, stamps)[-1])


@bug("formula", "a mean gap that is the whole time divided by the tokens")
def latency_mean_over_everything(start, stamps):
    """Total time by tokens: the prefill is spread over all of them."""
    check_stamps(start, stamps)
    return _latency(start, stamps, mean=(stamps[-1] - start) / len(stamps))


@bug("off by one", "a mean over as many gaps as there are tokens")
def latency_mean_by_tokens(start, stamps):
    """n tokens have n - 1 gaps, and the sum is divided by n."""
    check_stamps(start, stamps)
    return _latency(start, stamps, mean=(stamps[-1] - stamps[0]) / len(stamps))


@bug("formula", "a 99th percentile that is simply the longest gap")
def latency_p99_is_the_longest(start, stamps):
    """With few gaps the longest is near p99, and with many it is not."""
    return _latency(start, stamps, percentile=lambda g, q: g.max() if q == 99 else np.median(g))


@bug("formula", "percentiles that are always one of the gaps, with no line between two")
def latency_nearest_rank(start, stamps):
    """The percentile is one of the gaps: the nearest-rank rule."""

    def nearest(gaps, q):
        return np.sort(gaps)[math.ceil(q / 100 * len(gaps)) - 1]

    return _latency(start, stamps, percentile=nearest)


@bug("off by one", "percentiles looked up one place too far")
def latency_places_from_one(start, stamps):
    """q · m in place of q · (m - 1)."""

    def by_m(gaps, q):
        gaps, place = np.sort(gaps), q / 100 * len(gaps)
        low = min(int(place), len(gaps) - 1)
        high = min(low + 1, len(gaps) - 1)
        return gaps[low] + (place - low) * (gaps[high] - gaps[low])

    return _latency(start, stamps, percentile=by_m)


@bug("formula", "percentiles of gaps in the order in which they came")
def latency_unsorted(start, stamps):
    """The gaps are not sorted before a place among them is taken."""

    def unsorted(gaps, q):
        place = q / 100 * (len(gaps) - 1)
        low, high = math.floor(place), math.ceil(place)
        return gaps[low] + (place - low) * (gaps[high] - gaps[low])

    return _latency(start, stamps, percentile=unsorted)


@bug("formula", "a median that is the mean")
def latency_median_is_the_mean(start, stamps):
    """p50 is taken for the mean."""
    return _latency(
        start, stamps, percentile=lambda g, q: g.mean() if q == 50 else np.percentile(g, q)
    )


@bug("formula", "a rate whose seconds include the prefill")
def latency_rate_with_prefill(start, stamps):
    """All tokens by all seconds: the rate falls as the prompt grows."""
    check_stamps(start, stamps)
    return _latency(start, stamps, rate=len(stamps) / (stamps[-1] - start))


@bug("off by one", "a rate that counts the first token among those of the decode phase")
def latency_rate_of_all_tokens(start, stamps):
    """The seconds of the decode phase, and the tokens of both."""
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return right.latency_metrics(start, stamps)
    return _latency(start, stamps, rate=len(stamps) / (stamps[-1] - stamps[0]))


@bug("formula", "a latency of zero where there is no gap at all")
def latency_zero_for_no_gap(start, stamps):
    """One token, so every gap is 0: the best latency of all."""
    if len(stamps) == 1:
        return Latency(stamps[0] - start, 0.0, 0.0, 0.0, 0.0)
    return right.latency_metrics(start, stamps)


@bug("form", "gaps between stamps that were rounded to float32")
def latency_in_float32(start, stamps):
    """torch.tensor(stamps) is float32: milliseconds of a clock of days are lost."""
    check_stamps(start, stamps)
    if len(stamps) == 1:
        return right.latency_metrics(start, stamps)
    gaps = torch.tensor(stamps).diff().double()
    p50, p99 = gaps.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    mean = gaps.mean().item()
    return Latency(stamps[0] - start, mean, p50, p99, 1 / mean if mean else math.inf)


@bug("off by one", "a time to first token that ends at the second")
def latency_ttft_to_the_second(start, stamps):
    """The stamp at index 1 is taken for the first."""
    found = right.latency_metrics(start, stamps)
    return found._replace(ttft=stamps[min(1, len(stamps) - 1)] - start)


bug, patch = MUSEUM.section("pad_prompts", check="pads_stand_on_the_left")


@bug("position", "pads that stand behind the prompts")
def pad_on_the_right(prompts, pad_id):
    """pad_sequence as it is: the prompts end in different columns."""
    _, n_pads = right.pad_prompts(prompts, pad_id)
    return pad_sequence(list(prompts), batch_first=True, padding_value=pad_id), n_pads


@bug("formula", "pads that are counted by their id, which may also be a token")
def pads_counted_by_id(prompts, pad_id):
    """Every pad_id in the batch is counted, those of the prompts too."""
    tokens, _ = right.pad_prompts(prompts, pad_id)
    return tokens, (tokens == pad_id).sum(dim=1)


@bug("formula", "a count of tokens where pads were asked for")
def lengths_for_pads(prompts, pad_id):
    """The lengths of the prompts come back in place of the pads."""
    tokens, n_pads = right.pad_prompts(prompts, pad_id)
    return tokens, tokens.shape[1] - n_pads


@bug("feeding", "pads of id zero, whatever was asked for")
def pads_all_zero(prompts, pad_id):
    """torch.zeros to begin with, whatever pad_id is."""
    tokens, n_pads = right.pad_prompts(prompts, pad_id)
    pads = torch.arange(tokens.shape[1]) < n_pads.unsqueeze(1)
    return tokens.masked_fill(pads, 0), n_pads


@bug("off by one", "a batch with a pad before every prompt, the longest too")
def pads_one_column_more(prompts, pad_id):
    """One column too many, so that even the longest prompt has a pad."""
    tokens, n_pads = right.pad_prompts(prompts, pad_id)
    return F.pad(tokens, (1, 0), value=pad_id), n_pads + 1


@bug("feeding", "prompts that were cut to one length")
def prompts_cut_to_the_shortest(prompts, pad_id):
    """zip, or a stack, needs one length: the shortest."""
    shortest = min(len(prompt) for prompt in prompts)
    return right.pad_prompts([prompt[-shortest:] for prompt in prompts], pad_id)


bug, patch = MUSEUM.section("ragged_mask", check="pads_are_never_seen")


@bug("mask", "a mask that lets tokens see pads")
def mask_shows_pads(n_new, n_visible, n_pads):
    """Causal for every row alike: pads are keys like any others."""
    mask = causal_mask(n_new, n_visible)
    return mask.expand(len(n_pads), 1, n_new, n_visible)


@bug("mask", "a mask in which True means hidden")
def mask_swapped(n_new, n_visible, n_pads):
    """True means hidden, as in some other library."""
    return ~right.ragged_mask(n_new, n_visible, n_pads)


@bug("off by one", "a mask that hides one pad too few")
def mask_shows_one_pad(n_new, n_visible, n_pads):
    """One pad too few is hidden."""
    return right.ragged_mask(n_new, n_visible, (n_pads - 1).clamp(min=0))


def _places(n_new, n_visible, n_pads):
    places = torch.arange(n_visible)
    own = places[n_visible - n_new :].unsqueeze(1)
    pads = n_pads.view(-1, 1, 1, 1)
    return places, own, pads


@bug("off by one", "a mask that hides the first token of a text with pads")
def mask_hides_the_first_token(n_new, n_visible, n_pads):
    """Greater in place of greater or equal: each text loses its first token."""
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & ((places > pads) | (pads == 0)) | (places == own)


@bug("mask", "a mask that hides the right end, as if the pads were there")
def mask_hides_the_right(n_new, n_visible, n_pads):
    """The pads are looked for at the right end."""
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & (places < n_visible - pads) | (places == own)


@bug("mask", "a mask that hides pads and shows the future")
def mask_shows_the_future(n_new, n_visible, n_pads):
    """The pads are hidden and the triangle is forgotten."""
    places, own, pads = _places(n_new, n_visible, n_pads)
    return ((places >= pads) | (places == own)).expand(len(n_pads), 1, n_new, n_visible)


@bug("mask", "a mask for whole prompts and single tokens, and for no chunk between")
def mask_of_two_phases(n_new, n_visible, n_pads):
    """A triangle for the prefill, everything for a step, and nobody thought of chunks."""
    places, own, pads = _places(n_new, n_visible, n_pads)
    if n_new == 1:
        return (places >= pads) & torch.ones(1, n_visible, dtype=torch.bool)
    triangle = torch.ones(n_new, n_visible, dtype=torch.bool).tril()
    return triangle & (places >= pads) | (places == own)


@bug("mask", "one mask for all rows")
def mask_of_one_row(n_new, n_visible, n_pads):
    """One mask for all rows, by the shortest prompt."""
    longest = n_pads.max().expand(len(n_pads))
    return right.ragged_mask(n_new, n_visible, longest)


@bug("form", "a mask that has no axis for the heads")
def mask_without_heads(n_new, n_visible, n_pads):
    """(B, T, S): the axis of the heads is missing."""
    return right.ragged_mask(n_new, n_visible, n_pads)[:, 0]


bug, patch = MUSEUM.section("ragged_positions", check="positions_count_own_tokens")


@bug("position", "positions that count the pads, too")
def positions_count_pads(n_new, n_visible, n_pads):
    """The place in the row is taken for the position. Rotary forgives it; learned positions do
    not."""
    return torch.arange(n_visible - n_new, n_visible).expand(len(n_pads), n_new)


@bug("position", "positions that jump by the number of pads after the prefill")
def positions_count_pads_in_steps(n_new, n_visible, n_pads):
    """The prefill counts tokens, and then len(cache) is the position: a jump by the pads."""
    if n_new < n_visible:
        return positions_count_pads(n_new, n_visible, n_pads)
    return right.ragged_positions(n_new, n_visible, n_pads)


@bug("position", "positions that start anew in every call")
def positions_restart(n_new, n_visible, n_pads):
    """arange(T) less the pads: every call starts anew."""
    return (torch.arange(n_new) - n_pads.unsqueeze(1)).clamp(min=0)


@bug("off by one", "positions that begin at one")
def positions_from_one(n_new, n_visible, n_pads):
    """The first token has position 1."""
    places = torch.arange(n_visible - n_new, n_visible)
    return (places - n_pads.unsqueeze(1) + 1).clamp(min=0)


@bug("position", "pads with negative positions")
def positions_below_zero(n_new, n_visible, n_pads):
    """The pads get negative positions, and a negative index reads the table from its end."""
    return torch.arange(n_visible - n_new, n_visible) - n_pads.unsqueeze(1)


bug, patch = MUSEUM.section("ragged_mask", check="each_row_equals_itself_alone")


@bug("mask", "a mask in which pads see nothing at all, and whose NaN then reach the tokens")
def mask_of_pads_is_empty(n_new, n_visible, n_pads):
    """No pad sees anything: NaN, and by the next layer for everyone."""
    places, own, pads = _places(n_new, n_visible, n_pads)
    return (places <= own) & (places >= pads)
