"""The cheapest wrong functions for the checks of lesson 12, see `autograder cheapest`."""


# %% only_right_guesses_are_kept: every guess kept, the last row's token
def verify_greedy(draft, logits):
    return len(draft), int(logits[-1].argmax())


# %% only_right_guesses_are_kept: all guesses that agree
def verify_greedy(draft, logits):
    chosen = logits.argmax(dim=-1)
    kept = int((draft == chosen[:-1]).sum())
    return kept, int(chosen[kept])


# %% every_draft_gives_the_same_text: lesson 03's loop, without any guess
def speculate(model, propose, prompt, n_new, n_draft, cache=None):
    from course.minigpt.kv_cache import generate_cached

    return generate_cached(model, prompt[None], n_new, cache=cache)[0]


# %% passes_are_saved: every guess believed
def speculate(model, propose, prompt, n_new, n_draft, cache=None):
    text = torch.cat([prompt, greedy_next(forward_cached(model, prompt[None], cache)[:, -1])])
    while (left := len(prompt) + n_new - len(text)) > 0:
        draft = propose(text, min(n_draft, left - 1))
        logits = forward_cached(model, torch.cat([text[-1:], draft])[None], cache)
        text = torch.cat([text, draft, greedy_next(logits[:, -1])])
    return text


# %% cache_is_left_as_alone: lesson 03's loop, which leaves it so by itself
def speculate(model, propose, prompt, n_new, n_draft, cache=None):
    from course.minigpt.kv_cache import generate_cached

    return generate_cached(model, prompt[None], n_new, cache=cache)[0]


# %% lookup_copies_what_followed: what followed the last token where it stood before
def lookup_draft(text, n_draft, longest=3):
    places = (text[:-1] == text[-1]).nonzero()[:, 0]
    return text[places[-1] + 1 :][:n_draft].clone() if len(places) else text[:0].clone()


# %% lookup_copies_what_followed: nothing, ever
def lookup_draft(text, n_draft, longest=3):
    return text[:0].clone()


# %% first_token_has_the_models_odds: an ordinary draw, no guess looked at
def verify_sampled(draft, q, p, generator=None):
    return 0, int(torch.multinomial(p[0], 1, generator=generator))


# %% first_token_has_the_models_odds: a draw for each guess, kept where both are equal
def verify_sampled(draft, q, p, generator=None):
    for i, guess in enumerate(draft.tolist()):
        token = int(torch.multinomial(p[i], 1, generator=generator))
        if token != guess:
            return i, token
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))


# %% so_have_the_second_and_the_bonus: the first guess kept always, and then a draw
def verify_sampled(draft, q, p, generator=None):
    token = int(torch.multinomial(p[1], 1, generator=generator))
    if token != draft[-1]:
        return 1, token
    return len(draft), int(torch.multinomial(p[-1], 1, generator=generator))


# %% accepts_as_often_as_possible: a coin for one guess, and no token drawn
def verify_sampled(draft, q, p, generator=None):
    return int(torch.rand((), generator=generator) < 0.7), 0


# %% accepts_as_often_as_possible: guesses kept by the right odds, and no token drawn
def verify_sampled(draft, q, p, generator=None):
    for i, token in enumerate(draft.tolist()):
        if torch.rand((), generator=generator) * q[i, token] >= p[i, token]:
            return i, 0
    return len(draft), 0


# %% expected_tokens_add_up: one and the share of each guess
def expected_tokens(acceptance, n_draft):
    return 1 + acceptance * n_draft
