"""The cheapest wrong functions for the checks of lesson 04, see `autograder cheapest`."""


# %% every_chunk_size_gives_the_same_logits: the whole prompt in one pass
def prefill(model, prompt, cache, chunk_size=256):
    return forward_cached(model, prompt, cache)[:, -1]


# %% every_chunk_size_gives_the_same_logits: chunks for the cache, logits without it
def prefill(model, prompt, cache, chunk_size=256):
    for chunk in prompt.split(chunk_size, dim=1):
        model(chunk)
        cache.advance(chunk.shape[1])
    return model(prompt)[:, -1]


# %% too_long_a_prompt_changes_nothing: the whole prompt in one pass, which lesson 03 refuses
def prefill(model, prompt, cache, chunk_size=256):
    check_between("chunk_size", chunk_size, 1, 2**31)
    return forward_cached(model, prompt, cache)[:, -1]


# %% stream_writes_the_uncached_text: lesson 03's text, with a cache of its own
from course.minigpt.kv_cache import generate_cached


def stream(model, prompt, n_new, cache, chunk_size=256):
    yield from generate_cached(model, prompt, n_new)[:, prompt.shape[1] :].T.clone()


# %% no_step_before_it_is_asked_for: lesson 03's function for each token
from course.minigpt.kv_cache import generate_cached


def stream(model, prompt, n_new, cache, chunk_size=256):
    for _ in range(n_new):
        prompt = generate_cached(model, prompt, 1, cache)[:, -1:]
        yield prompt[:, 0]


# %% rollback_equals_a_fresh_start: the text is kept on the cache, and read anew for each token
def stream(model, prompt, n_new, cache, chunk_size=256):
    text = torch.cat([getattr(cache, "text", prompt[:, :0])[:, : len(cache)], prompt], dim=1)
    cache.advance(text.shape[1] + n_new - 1 - len(cache))
    for _ in range(n_new):
        token = greedy_next(model(text)[:, -1])
        cache.text = text = torch.cat([text, token.unsqueeze(1)], dim=1)
        yield token


# %% rollback_equals_a_fresh_start: lesson 03's text, all at once
from course.minigpt.kv_cache import generate_cached


def stream(model, prompt, n_new, cache, chunk_size=256):
    yield from generate_cached(model, prompt, n_new, cache)[:, prompt.shape[1] :].T.clone()


# %% first_token_is_no_gap: the mean for every gap
def latency_metrics(start, stamps):
    gap = (stamps[-1] - stamps[0]) / (len(stamps) - 1) if len(stamps) > 1 else None
    return Latency(stamps[0] - start, gap, gap, gap, gap and 1 / gap)


# %% pads_stand_on_the_left: PyTorch's padding, and pads counted by their id
def pad_prompts(prompts, pad_id):
    check_prompts(prompts)
    tokens = torch.nn.utils.rnn.pad_sequence(prompts, True, pad_id, padding_side="left")
    return tokens, (tokens == pad_id).sum(dim=1)


# %% pads_are_never_seen: lesson 03's mask for every row
def ragged_mask(n_new, n_visible, n_pads):
    return causal_mask(n_new, n_visible).expand(len(n_pads), 1, -1, -1)


# %% pads_are_never_seen: everybody sees all tokens, and pads see themselves
def ragged_mask(n_new, n_visible, n_pads):
    places = torch.arange(n_visible)
    token = places >= n_pads.view(-1, 1, 1, 1)
    return token | (places == places[-n_new:, None])


# %% positions_count_own_tokens: places in the row
def ragged_positions(n_new, n_visible, n_pads):
    return torch.arange(n_visible - n_new, n_visible).expand(len(n_pads), -1)


# %% each_row_equals_itself_alone: every row is read anew, alone
def pad_prompts(prompts, pad_id):
    tokens = torch.nn.utils.rnn.pad_sequence(prompts, True, pad_id, padding_side="left")
    return tokens, torch.tensor([tokens.shape[1] - len(prompt) for prompt in prompts])


def forward_ragged(model, tokens, n_pads, cache):
    cache.text = text = torch.cat([getattr(cache, "text", tokens[:, :0]), tokens], dim=1)
    logits = torch.zeros(*text.shape, model.config.vocab_size)
    for row, n in enumerate(n_pads.tolist()):
        logits[row, n:] = model(text[row : row + 1, n:])
    return logits[:, -tokens.shape[1] :]


# %% each_row_equals_itself_alone: a cache for each row
def pad_prompts(prompts, pad_id):
    tokens = torch.nn.utils.rnn.pad_sequence(prompts, True, pad_id, padding_side="left")
    return tokens, torch.tensor([tokens.shape[1] - len(prompt) for prompt in prompts])


def forward_ragged(model, tokens, n_pads, cache):
    if not hasattr(cache, "rows"):
        cache.rows = [KVCache(model.config, 1, cache.max_len) for _ in tokens]
    logits = torch.zeros(*tokens.shape, model.config.vocab_size)
    for row, n in enumerate(n_pads.tolist()):
        n = n if len(cache.rows[row]) == 0 else 0
        logits[row, n:] = forward_cached(model, tokens[row : row + 1, n:], cache.rows[row])
    return logits


# %% each_row_equals_itself_alone: PyTorch's padding, and the rest by follow-through
def pad_prompts(prompts, pad_id):
    tokens = torch.nn.utils.rnn.pad_sequence(prompts, True, pad_id, padding_side="left")
    return tokens, torch.tensor([tokens.shape[1] - len(prompt) for prompt in prompts])
