"""Known wrong answers to lesson 04: `stream`."""

from __future__ import annotations

from itertools import chain, islice

import torch

from autograder.lessons.prefill_and_decode.museum import MUSEUM
from course.minigpt import prefill_and_decode as right
from course.minigpt.kv_cache import KVCache, forward_cached
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


bug, patch = MUSEUM.section("stream", check="stream_writes_the_uncached_text")
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
patch(
    "stream_one_too_few",
    "off by one",
    "a stream that gives one token less than was asked for",
    "The first token is counted twice: n_new - 2 turns of the loop, or n_new - 1 tokens in all.",
    ("range(n_new - 1)", "range(n_new - 2)"),
)
patch(
    "stream_feeds_row_0",
    "feeding",
    "a stream that feeds every row the token of row 0",
    "token[0] is fed, and broadcast to all rows.",
    ("token.unsqueeze(1)", "token[:1].expand(len(token)).unsqueeze(1)"),
    kind="batch",
)
patch(
    "stream_samples",
    "sampling",
    "tokens that are drawn by their probabilities, where the likeliest was asked for",
    "multinomial in place of the argmax: another text in every run.",
    (
        "token = greedy_next(logits[:, -1])",
        "chances, chance = logits[:, -1].softmax(dim=-1), torch.Generator().manual_seed(0)\n"
        "        token = torch.multinomial(chances, 1, generator=chance)[:, 0]",
    ),
)
patch(
    "stream_chooses_the_least",
    "choice",
    "tokens with the lowest logit of all",
    "argmin, or an argsort read from the wrong end.",
    ("token = greedy_next(logits[:, -1])", "token = greedy_next(-logits[:, -1])"),
)
patch(
    "stream_gives_int32",
    "form",
    "tokens that are not int64",
    "The ids come out of NumPy, or are made smaller to save memory.",
    ("        yield token", "        yield token.int()"),
    kind="dtype",
)
patch(
    "stream_squeezes_a_single_row",
    "form",
    "tokens that lose their axis where there is one row alone",
    "squeeze() of (1, 1) leaves no axis at all.",
    ("    yield token\n    for", "    yield token.squeeze()\n    for"),
    ("        yield token", "        yield token.squeeze()"),
    kind="batch",
)
patch(
    "stream_stops_at_end",
    "feeding",
    "a stream that stops at <end>",
    "A story is over at `<end>`, one thinks: but n_new tokens were asked for.",
    (
        "range(n_new - 1):\n",
        "range(n_new - 1):\n        if (token == 1).all():\n            return\n",
    ),
    kind="end",
)
patch(
    "stream_stops_at_end_in_its_loop",
    "feeding",
    "a stream that stops at an <end> which is not its first token",
    "The loop looks for `<end>` after each of its tokens; the prefill's comes before the loop.",
    (
        "        yield token",
        "        yield token\n        if (token == 1).all():\n            return",
    ),
    kind="end",
)
patch(
    "stream_stops_at_end_at_once",
    "feeding",
    "a stream that stops before it gives out <end>",
    "`<end>` is no word, one thinks, and breaks off in its place.",
    (
        "    yield token\n    for",
        "    if (token == 1).any():\n        return\n    yield token\n    for",
    ),
    (
        "        yield token",
        "        if (token == 1).any():\n            return\n        yield token",
    ),
    kind="end",
)


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


bug, patch = MUSEUM.section("stream", check="no_step_before_it_is_asked_for")
patch(
    "stream_one_for_none",
    "off by one",
    "a stream that gives a token when none was asked for",
    "The first token is yielded before anybody looks at n_new = 0.",
    ("    if n_new == 0:\n        return\n", ""),
)
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
    "stream_prefills_all_but_the_last",
    "feeding",
    "a stream whose prefill leaves the prompt's last token to a decode step, and that stops for a prompt "
    "of a single token",
    "As above; of a single token nothing is left to prefill.",
    ("(prefill(model, prompt, cache", "(prefill(model, prompt[:, -1:], cache"),
    (
        "token = greedy_next(prefill",
        "prefill(model, prompt[:, :-1], cache, chunk_size)\n    token = greedy_next(prefill",
    ),
)
patch(
    "stream_one_by_one_by_default",
    "feeding",
    "a stream whose prompt goes in token by token where no chunk size was asked for",
    "The default of the signature is another one than prefill's: a pass for every token of a prompt.",
    ("chunk_size: int = 256", "chunk_size: int = 1"),
)


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


patch(
    "stream_keeps_the_chunk_size",
    "cost",
    "a stream that does not hand its chunk_size on to the prefill",
    "chunk_size is taken and forgotten, so prefill takes its default.",
    ("prefill(model, prompt, cache, chunk_size)", "prefill(model, prompt, cache)"),
    kind="cost",
)
patch(
    "stream_feeds_the_prompt_whole",
    "cost",
    "a stream whose prompt goes in as one chunk, whatever chunk_size is",
    "forward_cached of the whole prompt in the place of prefill.",
    (
        "prefill(model, prompt, cache, chunk_size)",
        "prefill(model, prompt, cache, prompt.shape[1])",
    ),
    kind="sizes",
)
patch(
    "stream_notices_at_the_last_token",
    "capacity",
    "a stream that notices only at the token for which no room is left",
    "Room is looked for by the prefill and by each step, so some tokens come out, and then no more.",
    ("    if needed > cache.max_len:", "    if False and needed > cache.max_len:"),
    kind="refusals",
)
patch(
    "stream_looks_for_one_place_more",
    "off by one",
    "a stream that looks for a place for its last token, which is never fed",
    "P + n_new in place of P + n_new - 1.",
    ("prompt.shape[1] + n_new - 1", "prompt.shape[1] + n_new"),
    kind="sizes",
)
patch(
    "stream_looks_for_room_for_nothing",
    "capacity",
    "a stream that refuses a prompt without room although no token was asked for",
    "The question for room comes before the look at n_new = 0.",
    ("    if n_new == 0:\n        return\n", ""),
    (
        "    token = greedy_next(prefill",
        "    if n_new == 0:\n        return\n    token = greedy_next(prefill",
    ),
    kind="sizes",
)
patch(
    "stream_ends_where_the_room_ends",
    "capacity",
    "a stream that ends without a word where the room ends",
    "CacheFull is caught, and the stream just stops.",
    ("        raise CacheFull", "        return\n        raise CacheFull"),
    kind="refusals",
)
patch(
    "stream_refuses_none",
    "arguments",
    "an n_new of 0 that is refused",
    "A stream of no tokens makes no sense, one thinks.",
    (
        "    if n_new == 0:\n        return\n",
        '    if n_new == 0:\n        raise ValueError("n_new is 0")\n',
    ),
    kind="sizes",
)
patch(
    "stream_takes_a_negative_number",
    "arguments",
    "a negative n_new that is taken for 0",
    "range() of a negative number is empty: nothing is refused, and nothing comes.",
    ('    check_between("n_new", n_new, 0, model.config.max_seq_len)\n', ""),
    ("if n_new == 0", "if n_new <= 0"),
    kind="refusals",
)


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

bug, patch = MUSEUM.section("stream", check="rollback_equals_a_fresh_start")


@bug("state", "a stream that does not use the cache that it was given")
def stream_in_a_cache_of_its_own(model, prompt, n_new, cache, chunk_size=256):
    """The cache that is given is not the one that is used."""
    own = KVCache(model.config, prompt.shape[0], prompt.shape[1] + n_new)
    return right.stream(model, prompt, n_new, own, chunk_size)


patch(
    "stream_empties_the_cache_first",
    "state",
    "a stream that clears the cache that it was given",
    "reset() before the prefill, to be safe: what was held is gone.",
    ("    needed = len(cache)", "    cache.reset()\n    needed = len(cache)"),
)


@bug("state", "a stream that leaves the cache as it found it")
def stream_takes_its_tokens_back(model, prompt, n_new, cache, chunk_size=256):
    """The cache is cut back at the end: whoever goes on has lost the text."""
    before = len(cache)
    yield from right.stream(model, prompt, n_new, cache, chunk_size)
    cache.truncate(before)
