"""What goes wrong in lesson 02, and what is right in another style."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.lessons.exhibit import Bug, Variant
from course.bounds import check_between
from course.minigpt.mini_gpt import sample_next

RESULT = "naive_decode.result_starts_with_the_prompt"
TOKENS = "naive_decode.every_new_token_is_the_likeliest"
PROMPT = "naive_decode.prompt_is_left_alone"
REFUSED = "naive_decode.bad_requests_are_refused"
WORK = "naive_decode.each_step_reads_everything"
NAIVE, NEEDED = "naive_decode.naive_rows_add_up", "naive_decode.needed_rows_add_up"
VISITS = "naive_decode.visits_add_up"


def check(model, prompt: Tensor, n_new) -> None:
    """What every answer below gets right, unless it is what it gets wrong."""
    model.check_tokens(prompt)
    check_between("n_new", n_new, 0, model.config.max_seq_len - prompt.shape[1])


def extend(tokens: Tensor, new: Tensor) -> Tensor:
    return torch.cat([tokens, new.unsqueeze(1)], dim=1)  # (B, T), (B,) -> (B, T + 1)


# --- the result ----------------------------------------------------------------------------------


def always_writes_something(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = extend(prompt, model(prompt)[:, -1].argmax(dim=-1))
    while tokens.shape[1] < prompt.shape[1] + n_new:
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


def nothing_for_nothing(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens if n_new else tokens[:, :0]


def returns_only_the_new_tokens(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens[:, prompt.shape[1] :]


def one_token_too_many(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new + 1):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


def collects_into_floats(model, prompt, n_new):
    check(model, prompt, n_new)
    B, P = prompt.shape
    out = torch.zeros(B, P + n_new)
    out[:, :P] = prompt
    for n in range(P, P + n_new):
        out[:, n] = model(out[:, :n].long())[:, -1].argmax(dim=-1)
    return out


def loses_the_batch_of_one(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens.squeeze()


# --- the tokens ----------------------------------------------------------------------------------


def reads_the_first_position(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, 0].argmax(dim=-1))
    return tokens


def feeds_the_last_token_only(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens[:, -1:])[:, -1].argmax(dim=-1))
    return tokens


def feeds_the_prompt_every_time(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(prompt)[:, -1].argmax(dim=-1))
    return tokens


def first_row_decides(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        new = model(tokens)[0, -1].argmax().repeat(len(tokens))
        tokens = extend(tokens, new)
    return tokens


def argmax_over_positions(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens).argmax(dim=1)[:, -1])
    return tokens


def all_new_tokens_at_once(model, prompt, n_new):
    check(model, prompt, n_new)
    if n_new == 0:
        return prompt.clone()
    new = model(prompt)[:, -1].topk(n_new, dim=-1).indices  # the n_new likeliest first tokens
    return torch.cat([prompt, new], dim=1)


def samples(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens, generator = prompt.clone(), torch.Generator().manual_seed(0)
    for _ in range(n_new):
        tokens = extend(tokens, sample_next(model(tokens)[:, -1], generator=generator))
    return tokens


# --- the prompt ----------------------------------------------------------------------------------


def hands_back_the_prompt_itself(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


def makes_room_in_the_prompt(model, prompt, n_new):
    check(model, prompt, n_new)
    (B, P), old = prompt.shape, prompt.clone()
    prompt.resize_(B, P + n_new)
    prompt[:, :P] = old
    for n in range(P, P + n_new):
        prompt[:, n] = model(prompt[:, :n])[:, -1].argmax(dim=-1)
    return prompt.clone()


def slides_the_prompt_along(model, prompt, n_new):
    check(model, prompt, n_new)
    out = [prompt.clone()]
    for _ in range(n_new):
        new = model(prompt)[:, -1].argmax(dim=-1)
        out.append(new.unsqueeze(1))
        prompt[:, :-1] = prompt[:, 1:].clone()
        prompt[:, -1] = new
    return torch.cat(out, dim=1)


# --- bad requests --------------------------------------------------------------------------------


def trusts_the_caller(model, prompt, n_new):
    tokens = prompt.clone()
    for _ in range(n_new):
        tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


def rounds_what_is_no_whole_number(model, prompt, n_new):
    n_new = int(n_new)
    check(model, prompt, n_new)
    return trusts_the_caller(model, prompt, n_new)


def lets_the_model_complain(model, prompt, n_new):
    if type(n_new) is not int or n_new < 0:
        raise ValueError(f"n_new must be a whole number of at least 0, got {n_new}")
    return trusts_the_caller(model, prompt, n_new)


def asserts(model, prompt, n_new):
    assert prompt.shape[1] > 0, "the prompt is empty"
    assert type(n_new) is int, n_new
    assert 0 <= n_new <= model.config.max_seq_len - prompt.shape[1], n_new
    return trusts_the_caller(model, prompt, n_new)


def refuses_what_just_fits(model, prompt, n_new):
    if prompt.shape[1] + n_new >= model.config.max_seq_len:
        raise ValueError(f"n_new={n_new} does not fit max_seq_len={model.config.max_seq_len}")
    check(model, prompt, n_new)
    return trusts_the_caller(model, prompt, n_new)


def names_nothing(model, prompt, n_new):
    try:
        check(model, prompt, n_new)
    except ValueError:
        raise ValueError("bad input") from None
    return trusts_the_caller(model, prompt, n_new)


# --- the work ------------------------------------------------------------------------------------


def looks_one_token_too_far(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    new = model(tokens)[:, -1].argmax(dim=-1)
    for _ in range(n_new):
        tokens = extend(tokens, new)
        if tokens.shape[1] <= model.config.max_seq_len:
            new = model(tokens)[:, -1].argmax(dim=-1)
    return tokens


def reads_the_empty_places_too(model, prompt, n_new):
    check(model, prompt, n_new)
    B, P = prompt.shape
    tokens = torch.zeros(B, P + n_new, dtype=torch.int64)
    tokens[:, :P] = prompt
    for n in range(P, P + n_new):
        tokens[:, n] = model(tokens)[:, n - 1].argmax(dim=-1)
    return tokens


def starts_over_for_every_token(model, prompt, n_new):
    check(model, prompt, n_new)
    tokens = prompt.clone()
    for n in range(1, n_new + 1):
        tokens = prompt.clone()
        for _ in range(n):
            tokens = extend(tokens, model(tokens)[:, -1].argmax(dim=-1))
    return tokens


# --- counting ------------------------------------------------------------------------------------


def counts_the_new_token_too(p, g):
    return g * p + g * (g + 1) // 2


def forgets_the_prompt(p, g):
    return g * (g + 1) // 2


def rounds_the_triangle(p, g):
    return g * p + g * g / 2


def triangle_of_everything(p, g):
    return (p + g) * (p + g + 1) // 2


def counts_the_last_token(p, g):
    return p + g


def negative_start(p, g):
    return p + g - 1


def counts_the_new_tokens_only(p, g):
    return g


def nothing_new_is_needed(p, g):
    return p if g else 0


def looks_at_itself_before_it_is_there(prompt_len, n_new):
    return sum(range(prompt_len + 1, prompt_len + n_new + 1))


def prompt_ends_after_prefill(prompt_len, n_new):
    return n_new * (n_new + 1) // 2


def prompt_is_all_there_is(prompt_len, n_new):
    return prompt_len * n_new


def average_rounded_down(prompt_len, n_new):
    return (prompt_len + prompt_len + n_new - 1) // 2 * n_new


def _bug(function, story: str, check: str, family: str, mistake: str) -> Bug:
    name = {NAIVE: "kv_rows_naive", NEEDED: "kv_rows_needed", VISITS: "attention_visits"}
    answer = {name.get(check, "generate_naive"): function}
    return Bug(function.__name__, story, check, family, mistake, answer)


BUGS = [
    _bug(
        nothing_for_nothing,
        "Where no new tokens are wanted, nothing comes back: not even the prompt.",
        RESULT,
        "form",
        "an empty result where no new tokens were asked for",
    ),
    _bug(
        always_writes_something,
        "The first token is chosen before the loop, so that no tokens are one token.",
        RESULT,
        "off by one",
        "a first token that is written even when none was asked for",
    ),
    _bug(
        returns_only_the_new_tokens,
        "Cuts the prompt off, as a chat window would.",
        RESULT,
        "form",
        "a result without the prompt",
    ),
    _bug(
        one_token_too_many,
        "Turns the loop n_new + 1 times.",
        RESULT,
        "off by one",
        "a loop that turns once too often",
    ),
    _bug(
        collects_into_floats,
        "torch.zeros without a dtype: ids become floats.",
        RESULT,
        "form",
        "a result whose ids have become floats",
    ),
    _bug(
        loses_the_batch_of_one,
        "squeeze() takes the batch away when it is 1.",
        RESULT,
        "form",
        "a result that drops an axis of size 1",
    ),
    _bug(
        reads_the_first_position,
        "Takes the logits of position 0 instead of the last.",
        TOKENS,
        "choice",
        "a choice made from the logits of the first position",
    ),
    _bug(
        feeds_the_last_token_only,
        "Feeds one token without a cache: the model has forgotten all before it.",
        TOKENS,
        "feeding",
        "a model that is fed one token and has forgotten all before it",
    ),
    _bug(
        feeds_the_prompt_every_time,
        "Never feeds back what was written: one word, again.",
        TOKENS,
        "feeding",
        "a model that never reads what it wrote",
    ),
    _bug(
        first_row_decides,
        "logits[0, -1]: every row gets the word of the first.",
        TOKENS,
        "choice",
        "a batch in which the first row chooses for all",
    ),
    _bug(
        argmax_over_positions,
        "argmax(dim=1) finds a position and takes it for an id.",
        TOKENS,
        "choice",
        "a maximum taken over the positions instead of the vocabulary",
    ),
    _bug(
        all_new_tokens_at_once,
        "The n_new best first words in place of n_new words.",
        TOKENS,
        "choice",
        "several tokens chosen from the logits of one pass",
    ),
    _bug(
        samples,
        "Draws from the distribution where the likeliest is asked for.",
        TOKENS,
        "sampling",
        "tokens that are drawn where the likeliest was asked for",
    ),
    _bug(
        hands_back_the_prompt_itself,
        "For n_new=0 the loop never makes a new tensor.",
        PROMPT,
        "state",
        "a result that is the caller's own tensor",
    ),
    _bug(
        makes_room_in_the_prompt,
        "resize_ makes room in the caller's own tensor.",
        PROMPT,
        "state",
        "a function that resizes the caller's prompt",
    ),
    _bug(
        slides_the_prompt_along,
        "Shifts the caller's prompt to keep its length.",
        PROMPT,
        "state",
        "a function that writes into the caller's prompt",
    ),
    _bug(
        trusts_the_caller,
        "range(-1) is empty: a negative n_new looks like success.",
        REFUSED,
        "arguments",
        "a function that looks at none of its arguments",
    ),
    _bug(
        rounds_what_is_no_whole_number,
        "int(2.5) is 2: half a token is lost.",
        REFUSED,
        "arguments",
        "a function that quietly makes a whole number of n_new",
    ),
    _bug(
        lets_the_model_complain,
        "Too long is found out after minutes of work.",
        REFUSED,
        "arguments",
        "a function that finds out about the length only when the model refuses it",
    ),
    _bug(
        asserts,
        "AssertionError, and none at all under python -O.",
        REFUSED,
        "arguments",
        "a function that refuses by assert",
    ),
    _bug(
        refuses_what_just_fits,
        ">= in place of >: the last place stays empty.",
        REFUSED,
        "capacity",
        "a limit that leaves the last place unused",
    ),
    _bug(
        names_nothing,
        "A ValueError that leaves the caller guessing.",
        REFUSED,
        "arguments",
        "a refusal that does not say what was wrong",
    ),
    _bug(
        looks_one_token_too_far,
        "The last forward pass chooses a token nobody wants.",
        WORK,
        "cost",
        "one forward pass whose token nobody wants",
    ),
    _bug(
        reads_the_empty_places_too,
        "Runs the whole buffer, zeros included, every time.",
        WORK,
        "cost",
        "a model that reads places which are still empty",
    ),
    _bug(
        starts_over_for_every_token,
        "Generates all from the prompt again, one token longer each time.",
        WORK,
        "cost",
        "a text that is generated from its prompt again for every new token",
    ),
    _bug(
        counts_the_new_token_too,
        "Step 1 reads p tokens, not p + 1.",
        NAIVE,
        "off by one",
        "a count in which a step reads the token that it is about to make",
    ),
    _bug(
        forgets_the_prompt,
        "1 + 2 + … + g: the prompt passes once only.",
        NAIVE,
        "formula",
        "a count in which the prompt passes through the model once only",
    ),
    _bug(
        rounds_the_triangle,
        "g²/2 in place of g(g-1)/2.",
        NAIVE,
        "off by one",
        "a triangle of steps that is taken for half a square",
    ),
    _bug(
        triangle_of_everything,
        "Feeds the prompt in token by token as well.",
        NAIVE,
        "formula",
        "a count that feeds the prompt in token by token as well",
    ),
    _bug(
        counts_the_last_token,
        "The last new token is never fed in; p + g counts it.",
        NEEDED,
        "off by one",
        "a count with a row for a token that is never fed in",
    ),
    _bug(
        negative_start,
        "p + g - 1 even when nothing is asked for.",
        NEEDED,
        "off by one",
        "a count that is right for every request but the empty one",
    ),
    _bug(
        counts_the_new_tokens_only,
        "The prompt needs its rows as well, once.",
        NEEDED,
        "formula",
        "a count without the rows of the prompt",
    ),
    _bug(
        nothing_new_is_needed,
        "New tokens that are fed back need their rows too.",
        NEEDED,
        "formula",
        "a count without the rows of the tokens that are fed back",
    ),
    _bug(
        looks_at_itself_before_it_is_there,
        "Counts P + 1 at step 1.",
        VISITS,
        "off by one",
        "a count in which a step looks at the token that it is about to make",
    ),
    _bug(
        prompt_ends_after_prefill,
        "Takes the prompt for paid once it has been read.",
        VISITS,
        "formula",
        "a count in which the prompt is looked at no more once it was read",
    ),
    _bug(
        prompt_is_all_there_is,
        "Forgets that what was written is looked at, too.",
        VISITS,
        "formula",
        "a count in which nobody looks at what was written",
    ),
    _bug(
        average_rounded_down,
        "Integer division by 2 before multiplying.",
        VISITS,
        "formula",
        "an average that is rounded before it is multiplied",
    ),
]

# --- right in another style ----------------------------------------------------------------------


def into_a_buffer(model, prompt: Tensor, n_new: int) -> Tensor:
    check(model, prompt, n_new)
    B, P = prompt.shape
    tokens = prompt.new_zeros(B, P + n_new)
    tokens[:, :P] = prompt
    for n in range(P, P + n_new):
        tokens[:, n] = model(tokens[:, :n])[:, -1].argmax(dim=-1)
    return tokens


def row_by_row(model, prompt: Tensor, n_new: int) -> Tensor:
    if not isinstance(n_new, int) or n_new < 0:
        raise ValueError(f"n_new should be 0, 1, 2, …, not {n_new}")
    if prompt.shape[1] == 0 or prompt.shape[1] + n_new > model.config.max_seq_len:
        raise ValueError(
            f"prompt and new tokens must be 1 … {model.config.max_seq_len} together, "
            f"got {prompt.shape[1]} and {n_new}"
        )
    rows = []
    for row in prompt.tolist():
        for _ in range(n_new):
            logits = model(torch.tensor([row]))[0, -1]
            row = [*row, int(torch.softmax(logits.double(), dim=-1).argmax())]
        rows.append(row)
    return torch.tensor(rows)


def by_recursion(model, prompt: Tensor, n_new: int) -> Tensor:
    check(model, prompt, n_new)
    if n_new == 0:
        return prompt.clone()
    with torch.inference_mode():
        new = model(prompt)[:, -1:].topk(1).indices.squeeze(-1)  # (B, 1)
    return by_recursion(model, torch.cat((prompt, new), -1), n_new - 1)


def rows_by_adding(p: int, g: int) -> int:
    return sum(p + step for step in range(g))


def rows_as_float(p: int, g: int) -> float:
    return g * (p + (p + g - 1)) / 2


def needed_as_a_set(p: int, g: int) -> int:
    return len({position for step in range(g) for position in range(p + step)})


def needed_at_the_end(p: int, g: int) -> int:
    if not g:
        return 0
    return p + g - 1


VARIANTS = [
    Variant(
        "buffer_and_sums",
        {
            "generate_naive": into_a_buffer,
            "kv_rows_naive": rows_by_adding,
            "kv_rows_needed": needed_as_a_set,
            "attention_visits": rows_by_adding,
        },
    ),
    Variant(
        "row_by_row_and_floats",
        {
            "generate_naive": row_by_row,
            "kv_rows_naive": rows_as_float,
            "kv_rows_needed": needed_at_the_end,
            "attention_visits": rows_as_float,
        },
    ),
    Variant("recursion", {"generate_naive": by_recursion}),
]
