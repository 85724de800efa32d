"""Known wrong answers to lesson 12."""

from __future__ import annotations

import torch

from autograder.lessons.exhibits import Museum
from course.drafts.rules import check_draft, check_odds, check_request
from course.minigpt.kv_cache import KVCache, forward_cached, generate_cached
from course.minigpt.mini_gpt import greedy_next
from course.minigpt.speculative import verify_greedy
from course.model.cache import CacheFull

MUSEUM = Museum("speculative")

# --- verify_greedy ---------------------------------------------------------------------------------

bug = MUSEUM.section("verify_greedy", check="only_right_guesses_are_kept")


@bug("choice", "all guesses counted that agree, also those behind a wrong one")
def counts_all_matches(draft, logits):
    """Right guesses behind a wrong one continue a text that does not exist."""
    check_draft(draft, logits)
    chosen = greedy_next(logits)
    kept = int((draft == chosen[:-1]).sum())
    return kept, int(chosen[kept])


# --- speculate -------------------------------------------------------------------------------------


bug = MUSEUM.section("speculate", check="every_draft_gives_the_same_text")


@bug("cost", "a loop that never proposes and writes token by token", kind="cheapest")
def writes_token_by_token(model, propose, prompt, n_new, n_draft, cache=None):
    """Lesson 03's function under the new name: the text and the cache come right by themselves."""
    return generate_cached(model, prompt[None], n_new, cache=cache)[0]


bug = MUSEUM.section("speculate", check="passes_are_saved")


@bug("cost", "guesses verified one by one")
def verifies_one_by_one(model, propose, prompt, n_new, n_draft, cache=None):
    """A pass for each guess: the text is right, and nothing is saved."""
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return prompt.clone()
    n_fed = len(prompt) + n_new - 1
    if cache is None:
        cache = KVCache(model.config, 1, n_fed, dtype=model.embed.weight.dtype)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull("no room")
    text = torch.cat([prompt, greedy_next(forward_cached(model, prompt[None], cache)[:, -1])])
    while (left := len(prompt) + n_new - len(text)) > 0:
        for guess in [*propose(text, min(n_draft, left - 1)).tolist(), None]:
            token = greedy_next(forward_cached(model, text[None, -1:], cache)[:, -1])
            text = torch.cat([text, token])
            if guess != int(token):
                break
    return text


@bug("cost", "the whole text computed again for each draft")
def recomputes_the_text(model, propose, prompt, n_new, n_draft, cache=None):
    """Each pass empties the cache and feeds everything."""
    check_request(model, prompt, n_new, n_draft)
    if n_new == 0:
        return prompt.clone()
    n_fed = len(prompt) + n_new - 1
    if cache is None:
        cache = KVCache(model.config, 1, n_fed, dtype=model.embed.weight.dtype)
    if len(cache) + n_fed > cache.max_len:
        raise CacheFull("no room")
    held, text = len(cache), prompt
    while (left := len(prompt) + n_new - len(text)) > 0:
        draft = propose(text, min(n_draft, left - 1)) if len(text) > len(prompt) else text[:0]
        cache.truncate(held)
        logits = forward_cached(model, torch.cat([text, draft])[None], cache)[0]
        kept, token = verify_greedy(draft, logits[-len(draft) - 1 :])
        text = torch.cat([text, draft[:kept], torch.tensor([token])])
        cache.truncate(held + len(text) - 1)
    return text


# --- verify_sampled --------------------------------------------------------------------------------


bug = MUSEUM.section("verify_sampled", check="so_have_the_second_and_the_bonus")


@bug("cost", "guesses kept only where they equal a draw from p", kind="cheapest")
def keeps_equal_draws(draft, q, p, generator=None):
    """Draws from p first and keeps the guess if it is the same token: the odds are right, and far fewer
    are kept."""
    check_odds(draft, q, p)
    for i, token in enumerate(draft.tolist()):
        drawn = int(torch.multinomial(p[i], 1, generator=generator))
        if drawn != token:
            return i, drawn
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))
