"""Known wrong answers to lesson 04."""

from __future__ import annotations

from itertools import chain, islice

import torch

from autograder.lessons.exhibits import Museum
from course.bounds import check_between
from course.cache import CacheFull
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import KVCache, causal_mask
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.prefill_and_decode import attend_ragged, prefill

MUSEUM = Museum("prefill_and_decode")


def _forward(model, tokens, cache, first, mask):
    """Compute logits of tokens (B, T) at positions from `first` on, under a mask (T, S)."""
    positions = torch.arange(first, first + tokens.shape[1]).expand(tokens.shape)
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        x = x + attend_ragged(block.attn, block.attn_norm(x), positions, mask, cache, layer)
        x = x + block.mlp(block.mlp_norm(x))
    cache.advance(tokens.shape[1])
    return model.lm_head(model.norm(x))


def _refuse(model, prompt, cache, chunk_size):
    """Refuse what prefill refuses: these mistakes come after the door."""
    model.check_tokens(prompt)
    check_between("chunk_size", chunk_size, 1, 2**31)
    if len(cache) + prompt.shape[1] > cache.max_len:
        raise CacheFull("full")


bug, patch = MUSEUM.section("prefill", check="every_chunk_size_gives_the_same_logits")


@bug("mask", "chunks whose mask stands at the left edge, as if each were the first")
def prefill_masks_top_left(model, prompt, cache, chunk_size=256):
    """Each chunk is masked by a triangle at the left edge, as a whole prompt is."""
    _refuse(model, prompt, cache, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        mask = torch.ones(chunk.shape[1], len(cache) + chunk.shape[1], dtype=torch.bool).tril()
        logits = _forward(model, chunk, cache, len(cache), mask)
    return logits[:, -1]


@bug("position", "chunks whose positions each begin at the same number")
def prefill_restarts_positions(model, prompt, cache, chunk_size=256):
    """Every chunk begins at position 0."""
    _refuse(model, prompt, cache, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        mask = causal_mask(chunk.shape[1], len(cache) + chunk.shape[1])
        logits = _forward(model, chunk, cache, 0, mask)
    return logits[:, -1]


patch(
    "prefill_drops_the_rest",
    "feeding",
    "a prompt whose last, shorter chunk is left out",
    "P // chunk_size chunks: what is left over never enters.",
    ("in prompt.split", "in prompt[:, : prompt.shape[1] // chunk_size * chunk_size or None].split"),
)
patch(
    "prefill_returns_the_first_chunk",
    "choice",
    "logits of the first chunk, when all have been fed",
    "The logits of the first chunk are kept, as a variable that is set once.",
    ("for chunk in", "out = []\n    for chunk in"),
    (
        "logits = forward_cached(model, chunk, cache)",
        "out.append(forward_cached(model, chunk, cache))",
    ),
    ("return logits", "return out[0]"),
)
patch(
    "prefill_returns_the_first_position",
    "choice",
    "logits of the first position of a chunk",
    "logits[:, 0] of the last chunk: right when that chunk has one token.",
    ("logits[:, -1]", "logits[:, 0]"),
)
patch(
    "prefill_returns_the_last_chunk",
    "form",
    "logits of every position of the last chunk",
    "All logits of the last chunk come back.",
    ("return logits[:, -1]", "return logits"),
)
patch(
    "prefill_feeds_all_at_once",
    "feeding",
    "a prompt that goes in whole, whatever chunk size was asked for",
    "chunk_size is taken and not used: the right logits, and everybody else waits.",
    ("split(chunk_size,", "split(prompt.shape[1],"),
)
patch(
    "prefill_feeds_one_by_one",
    "feeding",
    "a prompt that goes in token by token",
    "Token after token, as in decode: every weight is read once for each of them.",
    ("split(chunk_size,", "split(1,"),
)
patch(
    "prefill_one_by_one_by_default",
    "feeding",
    "a prompt that goes in token by token where no chunk size was asked for",
    "The default of the signature was changed while testing chunks, and stayed.",
    ("chunk_size: int = 256", "chunk_size: int = 1"),
)
patch(
    "prefill_takes_the_number_of_chunks",
    "feeding",
    "a chunk size that is taken for the number of chunks",
    "Tensor.chunk for Tensor.split: chunk_size is the number of chunks.",
    ("prompt.split(", "prompt.chunk("),
)

bug, patch = MUSEUM.section("prefill", check="too_long_a_prompt_changes_nothing")
patch(
    "prefill_notices_on_its_way",
    "capacity",
    "a prefill that notices only on its way that the room ends",
    "The cache refuses the last chunk, and the ones before it stay.",
    ("if needed >", "if False and needed >"),
)
patch(
    "prefill_looks_at_the_prompt_alone",
    "capacity",
    "a prefill that looks for room as if the cache were empty",
    "P against max_len: what is held already is not counted.",
    ("needed = len(cache) +", "needed ="),
)
patch(
    "prefill_leaves_a_place_empty",
    "capacity",
    "a prefill that never fills the last place",
    "Greater or equal: a prompt that just fits is refused.",
    ("needed > cache", "needed >= cache"),
)
patch(
    "prefill_cuts_what_is_too_long",
    "capacity",
    "a prefill that cuts off what does not fit, without a word",
    "What does not fit is cut off at the front, without a word.",
    (
        "needed = len(cache)",
        "prompt = prompt[:, len(cache) - cache.max_len :]\n    needed = len(cache)",
    ),
)
patch(
    "prefill_forgets_the_past",
    "state",
    "a prefill that clears the cache first",
    "reset() before the first chunk, to be safe: the conversation so far is gone.",
    ("needed = len(cache)", "cache.reset()\n    needed = len(cache)"),
)

bug, patch = MUSEUM.section("stream", check="stream_writes_the_uncached_text")
patch(
    "stream_one_for_none",
    "off by one",
    "a stream that gives a token when none was asked for",
    "The first token is yielded before anybody looks at n_new = 0.",
    ("    if n_new == 0:\n        return\n", ""),
)
patch(
    "stream_one_too_many",
    "off by one",
    "a stream that gives the first token on top of those that were asked for",
    "One token from the prefill, and n_new more from the loop.",
    ("range(n_new - 1)", "range(n_new)"),
)


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


patch(
    "stream_feeds_the_prompts_end_twice",
    "feeding",
    "a stream that feeds the last token of the prompt a second time",
    "After the prefill its last token is fed once more to start the loop.",
    ("(prefill(model, prompt, cache", "(prefill(model, prompt[:, -1:], cache"),
    (
        "token = greedy_next(prefill",
        "prefill(model, prompt, cache, chunk_size)\n    token = greedy_next(prefill",
    ),
)
patch(
    "stream_begins_with_the_prompts_end",
    "off by one",
    "a stream that begins with the last token of the prompt",
    "The loop yields before it chooses: first comes a token of the prompt.",
    ("    yield token\n    for", "    yield prompt[:, -1]\n    for"),
)
patch(
    "stream_keeps_feeding_the_first",
    "feeding",
    "a stream that feeds its first token again and again",
    "The variable that is fed is not the one that was just chosen.",
    ("token = greedy_next(logits[:, -1])", "new = greedy_next(logits[:, -1])"),
    ("        yield token", "        yield new"),
)

bug, patch = MUSEUM.section("stream", check="no_step_before_it_is_asked_for")
patch(
    "stream_decodes_the_first_token",
    "feeding",
    "a stream whose first token comes from a decode step",
    "The prompt without its end is prefilled, and a step chooses the first token.",
    ("(prefill(model, prompt, cache", "(prefill(model, prompt[:, -1:], cache"),
    (
        "token = greedy_next(prefill",
        "if prompt.shape[1] > 1: prefill(model, prompt[:, :-1], cache, chunk_size)\n"
        "    token = greedy_next(prefill",
    ),
)


patch(
    "stream_one_by_one_by_default",
    "feeding",
    "a stream whose prompt goes in token by token where no chunk size was asked for",
    "The default of the signature is another one than prefill's: a pass for every token of a prompt.",
    ("chunk_size: int = 256", "chunk_size: int = 1"),
)


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
    return chain([first], right.stream(model, first.unsqueeze(1), n_new - 1, cache, chunk_size))


@bug("cost", "a stream that computes one token ahead of its reader")
def stream_one_ahead_of_the_reader(model, prompt, n_new, cache, chunk_size=256):
    """The next token is computed before this one is given out."""
    tokens = right.stream(model, prompt, n_new, cache, chunk_size)
    held = list(islice(tokens, 1))
    for token in tokens:
        yield held.pop()
        held.append(token)
    yield from held


patch(
    "stream_feeds_the_last",
    "cost",
    "a stream that also feeds its last token",
    "The loop ends with a forward pass whose logits nobody reads.",
    (
        "        yield token",
        "        yield token\n    forward_cached(model, token.unsqueeze(1), cache)",
    ),
)

bug, patch = MUSEUM.section("prefill", check="rollback_equals_a_fresh_start")
patch(
    "prefill_keeps_its_own_tally",
    "state",
    "a prefill with a tally of its own of what the cache holds",
    "The tokens held are counted beside the cache, and truncate() does not know.",
    ("needed = len(cache) +", 'needed = getattr(cache, "fed", 0) +'),
    ("return logits", "cache.fed = needed\n    return logits"),
)

bug, patch = MUSEUM.section("stream", check="rollback_equals_a_fresh_start")


@bug("state", "a stream that does not use the cache that it was given")
def stream_in_a_cache_of_its_own(model, prompt, n_new, cache, chunk_size=256):
    """The cache that is given is not the one that is used."""
    own = KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)
    return right.stream(model, prompt, n_new, own, chunk_size)


bug, patch = MUSEUM.section("latency_metrics", check="first_token_is_no_gap")
patch(
    "latency_with_the_first_gap",
    "formula",
    "gaps among which is the wait for the first token",
    "The gaps are counted from the start: TTFT is one of them.",
    (", len(gaps) / gaps.sum())", ", rate)"),
    (
        "p50, p99 = np",
        "rate, gaps = len(gaps) / gaps.sum(), np.diff([start, *stamps])\n    p50, p99 = np",
    ),
)
patch(
    "latency_mean_over_everything",
    "formula",
    "a mean gap that is the whole time divided by the tokens",
    "Total time by tokens: the prefill is spread over all of them.",
    ("gaps.mean()", "(stamps[-1] - start) / len(stamps)"),
)
patch(
    "latency_mean_by_tokens",
    "off by one",
    "a mean over as many gaps as there are tokens",
    "n tokens have n - 1 gaps, and the sum is divided by n.",
    ("gaps.mean()", "gaps.sum() / len(stamps)"),
)
patch(
    "latency_p99_is_the_longest",
    "formula",
    "a 99th percentile that is simply the longest gap",
    "With few gaps the longest is near p99, and with many it is not.",
    ("p50, p99, ", "p50, gaps.max(), "),
)
patch(
    "latency_nearest_rank",
    "formula",
    "percentiles that are always one of the gaps, with no line between two",
    "The percentile is one of the gaps: the nearest-rank rule.",
    ("[50, 99]", '[50, 99], method="inverted_cdf"'),
)
patch(
    "latency_places_from_one",
    "off by one",
    "percentiles looked up one place too far",
    "q · m in place of q · (m - 1).",
    (
        "np.percentile(gaps, [50, 99])",
        "np.interp(np.array([0.5, 0.99]) * len(gaps), range(len(gaps)), np.sort(gaps))",
    ),
)
patch(
    "latency_unsorted",
    "formula",
    "percentiles of gaps in the order in which they came",
    "The gaps are not sorted before a place among them is taken.",
    (
        "np.percentile(gaps, [50, 99])",
        "np.interp(np.array([0.5, 0.99]) * (len(gaps) - 1), range(len(gaps)), gaps)",
    ),
)
patch(
    "latency_median_is_the_mean",
    "formula",
    "a median that is the mean",
    "p50 is taken for the mean.",
    ("p50, p99, ", "gaps.mean(), p99, "),
)
patch(
    "latency_rate_with_prefill",
    "formula",
    "a rate whose seconds include the prefill",
    "All tokens by all seconds: the rate falls as the prompt grows.",
    ("len(gaps) / gaps.sum()", "len(stamps) / (stamps[-1] - start)"),
)
patch(
    "latency_rate_of_all_tokens",
    "off by one",
    "a rate that counts the first token among those of the decode phase",
    "The seconds of the decode phase, and the tokens of both.",
    ("len(gaps) / gaps.sum()", "len(stamps) / gaps.sum()"),
)
patch(
    "latency_zero_for_no_gap",
    "formula",
    "a latency of zero where there is no gap at all",
    "One token, so every gap is 0: the best latency of all.",
    ("None, None, None, None", "0.0, 0.0, 0.0, 0.0"),
)
patch(
    "latency_in_float32",
    "form",
    "gaps between stamps that were rounded to float32",
    "torch.tensor(stamps) is float32: milliseconds of a clock of days are lost.",
    ("np.diff(stamps)", "np.diff(np.float32(stamps))"),
)
patch(
    "latency_ttft_to_the_second",
    "off by one",
    "a time to first token that ends at the second",
    "The stamp at index 1 is taken for the first.",
    ("stamps[0] - start", "stamps[min(1, len(stamps) - 1)] - start"),
)
patch(
    "latency_zero_is_no_start",
    "formula",
    "a start at 0 seconds that is taken for none",
    "`start or …`: 0.0 is false, so the first stamp stands in for the start, and nobody waited.",
    ("stamps[0] - start", "stamps[0] - (start or stamps[0])"),
)

bug, patch = MUSEUM.section("pad_prompts", check="pads_stand_on_the_left")
patch(
    "pad_on_the_right",
    "position",
    "pads that stand behind the prompts",
    "pad_sequence as it is: the prompts end in different columns.",
    ("row[T - len(prompt) :]", "row[: len(prompt)]"),
)
patch(
    "pads_counted_by_id",
    "formula",
    "pads that are counted by their id, which may also be a token",
    "Every pad_id in the batch is counted, those of the prompts too.",
    ("T - lengths", "(tokens == pad_id).sum(dim=1)"),
)
patch(
    "lengths_for_pads",
    "formula",
    "a count of tokens where pads were asked for",
    "The lengths of the prompts come back in place of the pads.",
    ("T - lengths", "lengths"),
)
patch(
    "pads_all_zero",
    "feeding",
    "pads of id zero, whatever was asked for",
    "torch.zeros to begin with, whatever pad_id is.",
    ("pad_id, dtype", "0, dtype"),
)
patch(
    "pads_one_column_more",
    "off by one",
    "a batch with a pad before every prompt, the longest too",
    "One column too many, so that even the longest prompt has a pad.",
    ("int(lengths.max())", "int(lengths.max()) + 1"),
)
patch(
    "prompts_cut_to_the_shortest",
    "feeding",
    "prompts that were cut to one length",
    "zip, or a stack, needs one length: the shortest.",
    (
        "lengths = torch",
        "prompts = [p[-min(map(len, prompts)) :] for p in prompts]\n    lengths = torch",
    ),
)

bug, patch = MUSEUM.section("ragged_mask", check="pads_are_never_seen")


@bug("mask", "a mask that lets tokens see pads")
def mask_shows_pads(n_new, n_visible, n_pads):
    """Causal for every row alike: pads are keys like any others."""
    return causal_mask(n_new, n_visible).expand(len(n_pads), 1, n_new, n_visible)


@bug("mask", "a mask in which True means hidden")
def mask_swapped(n_new, n_visible, n_pads):
    """True means hidden, as in some other library."""
    return ~right.ragged_mask(n_new, n_visible, n_pads)


patch(
    "mask_shows_one_pad",
    "off by one",
    "a mask that hides one pad too few",
    "One pad too few is hidden.",
    ("n_pads.view", "(n_pads - 1).view"),
)
patch(
    "mask_hides_the_first_token",
    "off by one",
    "a mask that hides the first token of each text",
    "Greater in place of greater or equal: each text loses its first token.",
    ("places >= n_pads", "places > n_pads"),
)
patch(
    "mask_hides_the_right",
    "mask",
    "a mask that hides the right end, as if the pads were there",
    "The pads are looked for at the right end.",
    ("places >= n_pads", "places < n_visible - n_pads"),
)
patch(
    "mask_shows_the_future",
    "mask",
    "a mask that hides pads and shows the future",
    "The pads are hidden and the triangle is forgotten.",
    ("causal_mask(n_new, n_visible, n_pads.device) & token", "token"),
)
patch(
    "mask_of_two_phases",
    "mask",
    "a mask for whole prompts and single tokens, and for no chunk between",
    "A triangle for the prefill, everything for a step, and nobody thought of chunks.",
    (
        "causal_mask(n_new, n_visible, n_pads.device)",
        "torch.ones(n_new, n_visible).tril(0 if n_new > 1 else n_visible).bool()",
    ),
)
patch(
    "mask_of_one_row",
    "mask",
    "one mask for all rows",
    "One mask for all rows, by the shortest prompt.",
    ("n_pads.view(-1,", "n_pads.max().expand(len(n_pads),"),
)
patch(
    "mask_without_heads",
    "form",
    "a mask that has no axis for the heads",
    "(B, T, S): the axis of the heads is missing.",
    ("view(-1, 1, 1, 1)", "view(-1, 1, 1)"),
)

bug, patch = MUSEUM.section("ragged_positions", check="positions_count_own_tokens")
patch(
    "positions_count_pads",
    "position",
    "positions that count the pads, too",
    "The place in the row is taken for the position. Rotary forgives it; learned positions do not.",
    ("n_pads.unsqueeze(1)", "0 * n_pads.unsqueeze(1)"),
)
patch(
    "positions_count_pads_in_steps",
    "position",
    "positions that jump by the number of pads after the prefill",
    "The prefill counts tokens, and then len(cache) is the position: a jump by the pads.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) * (n_new == n_visible)"),
)
patch(
    "positions_restart",
    "position",
    "positions that start anew in every call",
    "arange(T) less the pads: every call starts anew.",
    ("torch.arange(n_visible - n_new, n_visible,", "torch.arange(n_new,"),
)
patch(
    "positions_from_one",
    "off by one",
    "positions that begin at one",
    "The first token has position 1.",
    ("n_pads.unsqueeze(1)", "n_pads.unsqueeze(1) + 1"),
)
patch(
    "positions_below_zero",
    "position",
    "pads with negative positions",
    "The pads get negative positions, and a negative index reads the table from its end.",
    (".clamp(min=0)", ""),
)

bug, patch = MUSEUM.section("ragged_mask", check="each_row_equals_itself_alone")
patch(
    "mask_of_pads_is_empty",
    "mask",
    "a mask in which pads see nothing at all, and whose NaN then reach the tokens",
    "No pad sees anything: NaN, and by the next layer for everyone.",
    (" | itself", ""),
)
