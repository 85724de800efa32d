"""The cheapest wrong functions for the checks of lesson 02, see `autograder cheapest`."""


# %% result_starts_with_the_prompt: the prompt, then zeros
def generate_naive(model, prompt, n_new):
    return torch.cat([prompt, prompt.new_zeros(len(prompt), n_new)], dim=1)


# %% result_starts_with_the_prompt: the likeliest token after the prompt, again and again
def generate_naive(model, prompt, n_new):
    new = model(prompt)[:, -1].argmax(dim=-1, keepdim=True)
    return torch.cat([prompt, new.expand(-1, n_new)], dim=1)


# %% every_new_token_is_the_likeliest: the likeliest after the last token alone
def generate_naive(model, prompt, n_new):
    for _ in range(n_new):
        prompt = torch.cat([prompt, greedy_next(model(prompt[:, -1:])[:, -1])[:, None]], dim=1)
    return prompt


# %% prompt_is_left_alone: nothing
def generate_naive(model, prompt, n_new):
    return None


# %% prompt_is_left_alone: a copy of the prompt
def generate_naive(model, prompt, n_new):
    return prompt.clone()


# %% bad_requests_are_refused: refusals by what is given, and nothing for all other requests
def generate_naive(model, prompt, n_new):
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])


# %% each_step_reads_everything: passes over texts of the right lengths, and zeros
def generate_naive(model, prompt, n_new):
    for _ in range(n_new):
        model(prompt)
        prompt = torch.cat([prompt, prompt[:, :1]], dim=1)
    return prompt


# %% naive_rows_add_up: every step as long as the first
def kv_rows_naive(p, g):
    return p * g


# %% needed_rows_add_up: a row for every token of the text but the last
def kv_rows_needed(p, g):
    return p + g - 1


# %% visits_add_up: the last step's, in every step
def attention_visits(prompt_len, n_new):
    return n_new * (prompt_len + n_new - 1)
