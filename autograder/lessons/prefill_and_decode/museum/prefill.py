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


bug = MUSEUM.section("prefill", check="every_chunk_size_gives_the_same_logits")


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


bug = MUSEUM.section("prefill", check="too_long_a_prompt_changes_nothing")


@bug(
    "feeding",
    "a prompt that goes in by one pass, so that lesson 03 refuses what does not fit",
    kind="cheapest",
)
def prefill_in_one_pass(model, prompt, cache, chunk_size=256):
    """No chunks: the pass refuses or takes all of it, and nothing is ever half done."""
    check_between("chunk_size", chunk_size, 1, 2**31)
    return forward_cached(model, prompt, cache)[:, -1]


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
