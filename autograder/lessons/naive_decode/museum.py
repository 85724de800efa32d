"""Known wrong answers to lesson 02."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.lessons.exhibits import Museum
from course.bounds import check_between
from course.minigpt.mini_gpt import sample_next

MUSEUM = Museum("naive_decode")


def check(model, prompt: Tensor, n_new) -> None:
    """What every answer below gets right, unless it is what it gets wrong."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])


def extend(tokens: Tensor, new: Tensor) -> Tensor:
    return torch.cat([tokens, new.unsqueeze(1)], dim=1)  # (B, T), (B,) -> (B, T + 1)


bug, patch = MUSEUM.section("generate_naive", check="result_starts_with_the_prompt")


@bug("form", "an empty result where no new tokens were asked for")
def nothing_for_nothing(model, prompt, n_new):
    """Where no new tokens are wanted, nothing comes back: not even the prompt."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens if n_new else tokens[:, :0]


@bug("off by one", "a first token that is written even when none was asked for")
def always_writes_something(model, prompt, n_new):
    """The first token is chosen before the loop, so that no tokens are one token."""
    check(model, prompt, n_new)
    tokens = extend(prompt, model(prompt)[:, -1].argmax(dim=-1))
    while tokens.shape[1] < prompt.shape[1] + n_new:
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


@bug("form", "a result without the prompt")
def returns_only_the_new_tokens(model, prompt, n_new):
    """Cuts the prompt off, as a chat window would."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens[:, prompt.shape[1] :]


@bug("off by one", "a loop that turns once too often")
def one_token_too_many(model, prompt, n_new):
    """Turns the loop n_new + 1 times."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new + 1):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


@bug("form", "a result whose ids have become floats")
def collects_into_floats(model, prompt, n_new):
    """torch.zeros without a dtype: ids become floats."""
    check(model, prompt, n_new)
    B, P = prompt.shape
    out = torch.zeros(B, P + n_new)
    out[:, :P] = prompt
    for n in range(P, P + n_new):
        out[:, n] = model(out[:, :n].long())[:, -1].argmax(dim=-1)
    return out


@bug("form", "a result that drops an axis of size 1")
def loses_the_batch_of_one(model, prompt, n_new):
    """squeeze() takes the batch away when it is 1."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens.squeeze()


bug, patch = MUSEUM.section("generate_naive", check="every_new_token_is_the_likeliest")


@bug("choice", "a choice made from the logits of the first position")
def reads_the_first_position(model, prompt, n_new):
    """Takes the logits of position 0 instead of the last."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, 0].argmax(dim=-1))
    return tokens


@bug("feeding", "a model that is fed one token and has forgotten all before it")
def feeds_the_last_token_only(model, prompt, n_new):
    """Feeds one token without a cache: the model has forgotten all before it."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens[:, -1:])[:, -1].argmax(dim=-1))
    return tokens


@bug("feeding", "a model that never reads what it wrote")
def feeds_the_prompt_every_time(model, prompt, n_new):
    """Never feeds back what was written: one word, again."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(prompt)[:, -1].argmax(dim=-1))
    return tokens


@bug("choice", "a batch in which the first row chooses for all")
def first_row_decides(model, prompt, n_new):
    """logits[0, -1]: every row gets the word of the first."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        new = model(tokens)[0, -1].argmax().repeat(len(tokens))
        tokens = extend(tokens, new)
    return tokens


@bug("choice", "a maximum taken over the positions instead of the vocabulary")
def argmax_over_positions(model, prompt, n_new):
    """argmax(dim=1) finds a position and takes it for an id."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens).argmax(dim=1)[:, -1])
    return tokens


@bug("choice", "several tokens chosen from the logits of one pass")
def all_new_tokens_at_once(model, prompt, n_new):
    """The n_new best first words in place of n_new words."""
    check(model, prompt, n_new)
    if n_new == 0:
        return prompt.clone()
    new = model(prompt)[:, -1].topk(n_new, dim=-1).indices  # the n_new likeliest first tokens
    return torch.cat([prompt, new], dim=1)


@bug("sampling", "tokens that are drawn where the likeliest was asked for")
def samples(model, prompt, n_new):
    """Draws from the distribution where the likeliest is asked for."""
    check(model, prompt, n_new)
    tokens, generator = prompt.clone(), torch.Generator().manual_seed(0)
    for _ in range(n_new):
        tokens = extend(tokens, sample_next(model(tokens)[:, -1], generator=generator))
    return tokens


bug, patch = MUSEUM.section("generate_naive", check="prompt_is_left_alone")


@bug("state", "a result that is the caller's own tensor")
def hands_back_the_prompt_itself(model, prompt, n_new):
    """For n_new=0 the loop never makes a new tensor."""
    check(model, prompt, n_new)
    tokens = prompt
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


@bug("state", "a function that resizes the caller's prompt")
def makes_room_in_the_prompt(model, prompt, n_new):
    """resize_ makes room in the caller's own tensor."""
    check(model, prompt, n_new)
    (B, P), old = prompt.shape, prompt.clone()
    prompt.resize_(B, P + n_new)
    prompt[:, :P] = old
    for n in range(P, P + n_new):
        prompt[:, n] = model(prompt[:, :n])[:, -1].argmax(dim=-1)
    return prompt.clone()


@bug("state", "a function that writes into the caller's prompt")
def slides_the_prompt_along(model, prompt, n_new):
    """Shifts the caller's prompt to keep its length."""
    check(model, prompt, n_new)
    out = [prompt.clone()]
    for _ in range(n_new):
        new = model(prompt)[:, -1].argmax(dim=-1)
        out.append(new.unsqueeze(1))
        prompt[:, :-1] = prompt[:, 1:].clone()
        prompt[:, -1] = new
    return torch.cat(out, dim=1)


bug, patch = MUSEUM.section("generate_naive", check="bad_requests_are_refused")


@bug("arguments", "a function that looks at none of its arguments")
def trusts_the_caller(model, prompt, n_new):
    """range(-1) is empty: a negative n_new looks like success."""
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


@bug("arguments", "a function that quietly makes a whole number of n_new")
def rounds_what_is_no_whole_number(model, prompt, n_new):
    """int(2.5) is 2: half a token is lost."""
    n_new = int(n_new)
    check(model, prompt, n_new)
    return trusts_the_caller(model, prompt, n_new)


@bug("arguments", "a function that finds out about the length only when the model refuses it")
def lets_the_model_complain(model, prompt, n_new):
    """Too long is found out after minutes of work."""
    if type(n_new) is not int or n_new < 0:
        raise ValueError(f"n_new must be a whole number of at least 0, got {n_new}")
    return trusts_the_caller(model, prompt, n_new)


@bug("arguments", "a function that refuses by assert")
def asserts(model, prompt, n_new):
    """AssertionError, and none at all under python -O."""
    assert prompt.shape[1] > 0, "the prompt is empty"
    assert type(n_new) is int, n_new
    assert 0 <= n_new <= model.config.max_seq_len - prompt.shape[1], n_new
    return trusts_the_caller(model, prompt, n_new)


@bug("capacity", "a limit that leaves the last place unused")
def refuses_what_just_fits(model, prompt, n_new):
    """>= in place of >: the last place stays empty."""
    if prompt.shape[1] + n_new >= model.config.max_seq_len:
        raise ValueError(f"n_new={n_new} does not fit max_seq_len={model.config.max_seq_len}")
    check(model, prompt, n_new)
    return trusts_the_caller(model, prompt, n_new)


@bug("arguments", "a refusal that does not say what was wrong")
def names_nothing(model, prompt, n_new):
    """A ValueError that leaves the caller guessing."""
    try:
        check(model, prompt, n_new)
    except ValueError:
        raise ValueError("bad input") from None
    return trusts_the_caller(model, prompt, n_new)


bug, patch = MUSEUM.section("generate_naive", check="each_step_reads_everything")


@bug("cost", "one forward pass whose token nobody wants")
def looks_one_token_too_far(model, prompt, n_new):
    """The last forward pass chooses a token nobody wants."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    new = model(tokens)[:, -1].argmax(dim=-1)
    for _ in range(n_new):
        tokens = extend(tokens, new)
        if tokens.shape[1] <= model.config.max_seq_len:
            new = model(tokens)[:, -1].argmax(dim=-1)
    return tokens


@bug("cost", "a model that reads places which are still empty")
def reads_the_empty_places_too(model, prompt, n_new):
    """Runs the whole buffer, zeros included, every time."""
    check(model, prompt, n_new)
    B, P = prompt.shape
    tokens = torch.zeros(B, P + n_new, dtype=torch.int64)
    tokens[:, :P] = prompt
    for n in range(P, P + n_new):
        tokens[:, n] = model(tokens)[:, n - 1].argmax(dim=-1)
    return tokens


@bug("cost", "a text that is generated from its prompt again for every new token")
def starts_over_for_every_token(model, prompt, n_new):
    """Generates all from the prompt again, one token longer each time."""
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for n in range(1, n_new + 1):
        tokens = prompt.clone()
        for _ in range(n):
            tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


bug, patch = MUSEUM.section("kv_rows_naive", check="naive_rows_add_up")


@bug("off by one", "a count in which a step reads the token that it is about to make")
def counts_the_new_token_too(p, g):
    """Step 1 reads p tokens, not p + 1."""
    return g * p + g * (g + 1) // 2


@bug("formula", "a count in which the prompt passes through the model once only")
def forgets_the_prompt(p, g):
    """1 + 2 + … + g: the prompt passes once only."""
    return g * (g + 1) // 2


@bug("off by one", "a triangle of steps that is taken for half a square")
def rounds_the_triangle(p, g):
    """g²/2 in place of g(g-1)/2."""
    return g * p + g * g / 2


@bug("formula", "a count that feeds the prompt in token by token as well")
def triangle_of_everything(p, g):
    """Feeds the prompt in token by token as well."""
    return (p + g) * (p + g + 1) // 2


bug, patch = MUSEUM.section("kv_rows_needed", check="needed_rows_add_up")


@bug("off by one", "a count with a row for a token that is never fed in")
def counts_the_last_token(p, g):
    """The last new token is never fed in; p + g counts it."""
    return p + g


@bug("off by one", "a count that is right for every request but the empty one")
def negative_start(p, g):
    """p + g - 1 even when nothing is asked for."""
    return p + g - 1


@bug("formula", "a count without the rows of the prompt")
def counts_the_new_tokens_only(p, g):
    """The prompt needs its rows as well, once."""
    return g


@bug("formula", "a count without the rows of the tokens that are fed back")
def nothing_new_is_needed(p, g):
    """New tokens that are fed back need their rows too."""
    return p if g else 0


bug, patch = MUSEUM.section("attention_visits", check="visits_add_up")


@bug("off by one", "a count in which a step looks at the token that it is about to make")
def looks_at_itself_before_it_is_there(prompt_len, n_new):
    """Counts P + 1 at step 1."""
    return sum(range(prompt_len + 1, prompt_len + n_new + 1))


@bug("formula", "a count in which the prompt is looked at no more once it was read")
def prompt_ends_after_prefill(prompt_len, n_new):
    """Takes the prompt for paid once it has been read."""
    return n_new * (n_new + 1) // 2


@bug("formula", "a count in which nobody looks at what was written")
def prompt_is_all_there_is(prompt_len, n_new):
    """Forgets that what was written is looked at, too."""
    return prompt_len * n_new


@bug("formula", "an average that is rounded before it is multiplied")
def average_rounded_down(prompt_len, n_new):
    """Integer division by 2 before multiplying."""
    return (prompt_len + prompt_len + n_new - 1) // 2 * n_new
