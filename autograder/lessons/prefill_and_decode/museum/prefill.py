"""Known wrong answers to lesson 04: `prefill`."""

from __future__ import annotations

import torch

from autograder.lessons.prefill_and_decode.museum import MUSEUM
from course.minigpt.kv_cache import causal_mask, forward_cached
from course.minigpt.prefill_and_decode import attend_ragged
from course.model.bounds import check_between
from course.model.cache import CacheFull


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
    kind="cost",
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


@bug("cost", "a prompt whose last token goes in by itself, in a pass of its own", kind="cost")
def prefill_feeds_the_last_alone(model, prompt, cache, chunk_size=256):
    """All but the last token is prefilled, and one more pass gives the logits."""
    _refuse(model, prompt, cache, chunk_size)
    chunks = [*prompt[:, :-1].split(chunk_size, dim=1), prompt[:, -1:]]
    for chunk in chunks:
        if chunk.shape[1]:
            logits = forward_cached(model, chunk, cache)
    return logits[:, -1]


@bug("cost", "a prompt whose last token is computed twice", kind="cost")
def prefill_computes_the_last_twice(model, prompt, cache, chunk_size=256):
    """The cache goes back by one, and the last token is fed again for its logits."""
    _refuse(model, prompt, cache, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        forward_cached(model, chunk, cache)
    cache.truncate(len(cache) - 1)
    return forward_cached(model, prompt[:, -1:], cache)[:, -1]


_LOGITS: dict = {}


@bug(
    "state",
    "logits that are kept by the prompt, and found again for another model",
    kind="instances",
)
def prefill_remembers_prompts(model, prompt, cache, chunk_size=256):
    """Prompts come twice, so their logits are kept in a dict beside the function."""
    _refuse(model, prompt, cache, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        logits = forward_cached(model, chunk, cache)
    return _LOGITS.setdefault(tuple(prompt.flatten().tolist()), logits[:, -1])


_PLACE: dict = {}


@bug("state", "logits in one tensor that every call writes into again", kind="results")
def prefill_reuses_its_result(model, prompt, cache, chunk_size=256):
    """One buffer for each shape saves memory: the logits of the call before are gone."""
    _refuse(model, prompt, cache, chunk_size)
    for chunk in prompt.split(chunk_size, dim=1):
        last = forward_cached(model, chunk, cache)[:, -1]
    key = (tuple(last.shape), last.dtype)
    return _PLACE.setdefault(key, torch.empty_like(last)).copy_(last)


patch(
    "prefill_feeds_even_chunks",
    "feeding",
    "chunks that are all of about one length, in place of whole ones and a rest",
    "The prompt is cut evenly, as tensor_split does: as many chunks as needed, none of them full.",
    (
        "prompt.split(chunk_size, dim=1)",
        "prompt.tensor_split(-(-prompt.shape[1] // chunk_size), dim=1)",
    ),
)
patch(
    "prefill_feeds_chunks_alike",
    "feeding",
    "chunks that are cut by their number, all alike but the last",
    "Tensor.chunk with the right number of chunks: 8 tokens by 5 become 4 and 4.",
    ("prompt.split(chunk_size, dim=1)", "prompt.chunk(-(-prompt.shape[1] // chunk_size), dim=1)"),
)
patch(
    "prefill_begins_with_the_rest",
    "feeding",
    "a prompt whose shorter chunk goes in first",
    "What is left over is fed first, then whole chunks.",
    (
        "prompt.split(chunk_size, dim=1)",
        "[c.flip(1) for c in prompt.flip(1).split(chunk_size, dim=1)][::-1]",
    ),
)
patch(
    "prefill_drops_the_last_token",
    "feeding",
    "a prompt whose last token is left for the stream",
    "The last token is kept back, to be fed as the first step.",
    ("in prompt.split", "in prompt[:, : max(1, prompt.shape[1] - 1)].split"),
)
patch(
    "prefill_caps_the_chunk",
    "cost",
    "chunks of at most 256 tokens, whatever was asked for",
    "The default is taken for a limit.",
    ("split(chunk_size,", "split(min(chunk_size, 256),"),
    kind="sizes",
)
patch(
    "prefill_feeds_all_by_default",
    "cost",
    "a prompt that goes in whole where no chunk size was asked for",
    "None, or a huge number, as the default: a long prompt is one chunk.",
    ("chunk_size: int = 256", "chunk_size: int = 2**20"),
    kind="sizes",
)
patch(
    "prefill_squeezes_a_single_row",
    "form",
    "logits that lose their axis of rows where there is one row alone",
    "squeeze() takes away every axis of size 1.",
    ("return logits[:, -1]", "return logits[:, -1:].squeeze()"),
    kind="batch",
)
patch(
    "prefill_returns_float32",
    "form",
    "logits in float32, whatever the model computes in",
    ".float() at the end: a model in float64, or in float16, gets another type back.",
    ("return logits[:, -1]", "return logits[:, -1].float()"),
    kind="dtype",
)
patch(
    "prefill_views_the_prompt",
    "form",
    "a prompt whose numbers are taken to lie side by side in memory",
    "view() of a prompt that is a slice or a transpose stops.",
    ("in prompt.split", "in prompt.view(-1).view(prompt.shape).split"),
    kind="layout",
)
patch(
    "prefill_returns_one_column",
    "form",
    "logits of the last position that keep an axis for it",
    "logits[:, -1:] is (B, 1, V).",
    ("return logits[:, -1]", "return logits[:, -1:]"),
)
patch(
    "prefill_returns_the_last_row",
    "form",
    "logits of the last row of the batch, at every position",
    "logits[-1] takes the last row where the last position was meant.",
    ("return logits[:, -1]", "return logits[-1]"),
)
patch(
    "prefill_returns_log_probabilities",
    "choice",
    "logarithms of probabilities where logits were asked for",
    "log_softmax at the end: the same choice, and other numbers.",
    ("return logits[:, -1]", "return logits[:, -1].log_softmax(dim=-1)"),
)
patch(
    "prefill_returns_probabilities",
    "choice",
    "probabilities where logits were asked for",
    "softmax at the end: the same choice, and other numbers.",
    ("return logits[:, -1]", "return logits[:, -1].softmax(dim=-1)"),
)
patch(
    "prefill_feeds_row_0",
    "feeding",
    "a batch of which the first row alone is fed, for all rows",
    "prompt[0], expanded: every row continues the first.",
    ("in prompt.split", "in prompt[:1].expand(prompt.shape).split"),
    kind="batch",
)

bug, patch = MUSEUM.section("prefill", check="too_long_a_prompt_changes_nothing")
patch(
    "prefill_notices_on_its_way",
    "capacity",
    "a prefill that notices only on its way that the room ends, for it looks at no free places before",
    "The cache refuses the last chunk, and the ones before it stay. (The same numbers come of a look at "
    "the model's max_seq_len, at the number of rows, or at one chunk at a time.)",
    ("if needed >", "if False and needed >"),
    kind="refusals",
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


@bug(
    "capacity",
    "a prefill that feeds until the room ends, and then takes it all back",
    kind="refusals",
)
def prefill_takes_back(model, prompt, cache, chunk_size=256):
    """try, except CacheFull, truncate: all the work is done before the refusal."""
    model.check_tokens(prompt)
    check_between("chunk_size", chunk_size, 1, 2**31)
    before = len(cache)
    try:
        for chunk in prompt.split(chunk_size, dim=1):
            logits = forward_cached(model, chunk, cache)
    except CacheFull:
        cache.truncate(before)
        raise
    return logits[:, -1]


patch(
    "prefill_looks_for_room_chunk_by_chunk",
    "capacity",
    "a prefill that looks for room before each chunk, and not once for all of them",
    "The question for room stands in the loop: the chunks before the last one are fed by then.",
    ("    needed = len(cache) + prompt.shape[1]\n", "    needed = 0\n"),
    (
        "        logits = forward_cached",
        "        if len(cache) + chunk.shape[1] > cache.max_len:\n"
        '            raise CacheFull("full")\n'
        "        logits = forward_cached",
    ),
    kind="refusals",
)
patch(
    "prefill_refuses_by_value_error",
    "arguments",
    "a prompt without room that is refused by a ValueError",
    "Too many tokens are a wrong value, one thinks; but who waits for room waits for CacheFull.",
    ("raise CacheFull(", "raise ValueError("),
    kind="refusals",
)
patch(
    "prefill_counts_all_rows",
    "capacity",
    "a prefill that counts the tokens of all rows against the places of one",
    "prompt.numel(): a place of a cache holds a token of every row.",
    ("prompt.shape[1]", "prompt.numel()"),
    kind="batch",
)
patch(
    "prefill_cuts_the_end_off",
    "capacity",
    "a prefill that feeds the beginning of a prompt that is too long, without a word",
    "What does not fit is cut off at the end, without a word.",
    (
        "needed = len(cache)",
        "prompt = prompt[:, : cache.max_len - len(cache)]\n    needed = len(cache)",
    ),
    kind="refusals",
)
patch(
    "prefill_checks_chunk_by_chunk",
    "arguments",
    "ids outside the vocabulary that are noticed in their chunk, after others were fed",
    "The line that checks the prompt is gone, for forward_cached checks as well: chunk by chunk.",
    ("    model.check_tokens(prompt)\n", ""),
    kind="refusals",
)
patch(
    "prefill_takes_any_chunk_size",
    "arguments",
    "chunk sizes below 1 that are taken for 1",
    "max(1, chunk_size) in the place of a refusal.",
    (
        '    check_between("chunk_size", chunk_size, 1, 2**31)\n',
        "    chunk_size = max(1, chunk_size)\n",
    ),
    kind="refusals",
)
patch(
    "prefill_leaves_one_place_out",
    "capacity",
    "a prefill that looks for one place less than it needs",
    "A stream never feeds its last token, so P - 1 places are looked for; but a prompt's last is fed.",
    ("prompt.shape[1]", "prompt.shape[1] - 1"),
    kind="refusals",
)

bug, patch = MUSEUM.section("prefill", check="rollback_equals_a_fresh_start")
patch(
    "prefill_keeps_its_own_tally",
    "capacity",
    "a prefill with a tally of its own of what the cache holds",
    "The tokens held are counted beside the cache, and truncate() does not know.",
    ("needed = len(cache) +", 'needed = getattr(cache, "fed", 0) +'),
    ("return logits", "cache.fed = needed\n    return logits"),
)
