"""Known wrong answers to lesson 04: `stream`."""

from __future__ import annotations

from itertools import chain, islice

import torch

from autograder.lessons.prefill_and_decode.museum import MUSEUM
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.prefill_and_decode import prefill
from course.model.bounds import check_between
from course.model.cache import CacheFull


def _refuse(model, prompt, n_new, cache):
    """Refuse what stream refuses: these mistakes come after the door."""
    check_between("n_new", n_new, 0, model.config.max_seq_len)
    model.check_tokens(prompt)
    if n_new and len(cache) + prompt.shape[1] + n_new - 1 > cache.max_len:
        raise CacheFull("full")


bug = MUSEUM.section("stream", check="stream_writes_the_uncached_text")


@bug("state", "lesson 03's text, written with a cache of its own", kind="cheapest")
def stream_gives_out_lesson_03(model, prompt, n_new, cache, chunk_size=256):
    """All of the text is written by lesson 03's function, and then given out in pieces."""
    yield from generate_cached(model, prompt, n_new)[:, prompt.shape[1] :].T.clone()


@bug("cost", "lesson 03's text, all of which is written before the first token", kind="cheapest")
def stream_gives_out_what_is_finished(model, prompt, n_new, cache, chunk_size=256):
    """The same with the cache that was handed in: right numbers in it, and nobody can read along."""
    yield from generate_cached(model, prompt, n_new, cache)[:, prompt.shape[1] :].T.clone()


@bug("cost", "a prompt that goes in by one pass, whatever chunk_size is", kind="cheapest")
def stream_asks_lesson_03_for_each_token(model, prompt, n_new, cache, chunk_size=256):
    """Lesson 03's function writes one token at a time: a stream, but without a prefill."""
    for _ in range(n_new):
        prompt = generate_cached(model, prompt, 1, cache)[:, -1:]
        yield prompt[:, 0]


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


@bug("state", "tokens that all lie in one tensor, which is written anew", kind="results")
def stream_writes_into_one_tensor(model, prompt, n_new, cache, chunk_size=256):
    """One tensor is made and written into: who keeps the tokens keeps the last one many times."""
    held = torch.empty(prompt.shape[0], dtype=torch.int64)
    for token in right.stream(model, prompt, n_new, cache, chunk_size):
        yield held.copy_(token)


_NEXT: dict = {}


@bug("state", "two streams that read what to feed from one place", kind="instances")
def stream_shares_its_state(model, prompt, n_new, cache, chunk_size=256):
    """The token that is fed next is kept beside the function, where another stream writes as well."""
    _refuse(model, prompt, n_new, cache)
    for turn in range(n_new):
        if turn == 0:
            logits = prefill(model, prompt, cache, chunk_size)
        else:
            logits = forward_cached(model, _NEXT["feed"], cache)[:, -1]
        token = greedy_next(logits)
        _NEXT["feed"] = token.unsqueeze(1)
        yield token


@bug("feeding", "a stream that feeds the whole text again in each step")
def stream_feeds_the_whole_text(model, prompt, n_new, cache, chunk_size=256):
    """As without a cache: each step feeds all tokens so far, behind those that are held."""
    _refuse(model, prompt, n_new, cache)
    text = prompt
    for _ in range(n_new):
        token = greedy_next(forward_cached(model, text, cache)[:, -1])
        yield token
        text = torch.cat([text, token.unsqueeze(1)], dim=1)


@bug("feeding", "a stream whose first step feeds a token of the prompt once more")
def stream_feeds_the_prompts_end_between(model, prompt, n_new, cache, chunk_size=256):
    """The loop begins with the prompt's last token, to be sure that it is held."""
    _refuse(model, prompt, n_new, cache)
    if n_new == 0:
        return
    token = greedy_next(prefill(model, prompt, cache, chunk_size))
    yield token
    for turn in range(n_new - 1):
        if turn == 0:
            forward_cached(model, prompt[:, -1:], cache)
        token = greedy_next(forward_cached(model, token.unsqueeze(1), cache)[:, -1])
        yield token


bug = MUSEUM.section("stream", check="no_step_before_it_is_asked_for")


@bug("cost", "a stream that computes everything before its first token", kind="cost")
def stream_computes_all_first(model, prompt, n_new, cache, chunk_size=256):
    """A list is filled and then yielded: it streams, but only in name."""
    yield from list(right.stream(model, prompt, n_new, cache, chunk_size))


@bug("cost", "a stream that prefills before a token is asked for", kind="cost")
def stream_works_before_it_is_asked(model, prompt, n_new, cache, chunk_size=256):
    """The prefill runs when the stream is made, not when a token is asked for."""
    _refuse(model, prompt, n_new, cache)
    if n_new == 0:
        return iter(())
    first = greedy_next(prefill(model, prompt, cache, chunk_size))
    return chain([first], right.stream(model, first.unsqueeze(1), n_new - 1, cache, chunk_size))


@bug("cost", "a stream that has computed everything before a token is asked for", kind="cost")
def stream_is_a_list(model, prompt, n_new, cache, chunk_size=256):
    """A list is filled in the call itself, and returned."""
    return iter(list(right.stream(model, prompt, n_new, cache, chunk_size)))


@bug("cost", "a stream that computes the whole text anew for each token", kind="cost")
def stream_computes_all_again(model, prompt, n_new, cache, chunk_size=256):
    """The cache goes back and the text so far is prefilled for each token: right, and slow."""
    _refuse(model, prompt, n_new, cache)
    before, text = len(cache), prompt
    for _ in range(n_new):
        cache.truncate(before)
        token = greedy_next(prefill(model, text, cache, chunk_size))
        yield token
        text = torch.cat([text, token.unsqueeze(1)], dim=1)


@bug("cost", "a stream that prefills although no token was asked for", kind="sizes")
def stream_prefills_for_nothing(model, prompt, n_new, cache, chunk_size=256):
    """The prefill comes before the look at n_new = 0: nothing comes out, and the cache is filled."""
    _refuse(model, prompt, n_new, cache)
    logits = prefill(model, prompt, cache, chunk_size)
    for turn in range(n_new):
        if turn:
            logits = forward_cached(model, token.unsqueeze(1), cache)[:, -1]  # noqa: F821
        token = greedy_next(logits)
        yield token


@bug("cost", "a stream that computes one token ahead of its reader")
def stream_one_ahead_of_the_reader(model, prompt, n_new, cache, chunk_size=256):
    """The next token is computed before this one is given out."""
    tokens = right.stream(model, prompt, n_new, cache, chunk_size)
    held = list(islice(tokens, 1))
    for token in tokens:
        yield held.pop()
        held.append(token)
    yield from held


bug = MUSEUM.section("stream", check="rollback_equals_a_fresh_start")


@bug("state", "a text that is kept beside the cache, and read anew for each token", kind="cheapest")
def stream_keeps_the_text(model, prompt, n_new, cache, chunk_size=256):
    """The cache lends its length, and is never filled: all tokens go through the model again."""
    text = torch.cat([getattr(cache, "text", prompt[:, :0])[:, : len(cache)], prompt], dim=1)
    cache.advance(text.shape[1] + n_new - 1 - len(cache))
    for _ in range(n_new):
        token = greedy_next(model(text)[:, -1])
        cache.text = text = torch.cat([text, token.unsqueeze(1)], dim=1)
        yield token


@bug("state", "a stream that does not use the cache that it was given")
def stream_in_a_cache_of_its_own(model, prompt, n_new, cache, chunk_size=256):
    """The cache that is given is not the one that is used."""
    own = KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)
    return right.stream(model, prompt, n_new, own, chunk_size)


@bug("state", "a stream that leaves the cache as it found it")
def stream_takes_its_tokens_back(model, prompt, n_new, cache, chunk_size=256):
    """The cache is cut back at the end: whoever goes on has lost the text."""
    before = len(cache)
    yield from right.stream(model, prompt, n_new, cache, chunk_size)
    cache.truncate(before)
