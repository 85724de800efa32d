"""Known wrong answers to lesson 02: naive generation, and the three counts."""

from autograder.lessons.exhibits import Museum
from course.minigpt import naive_decode as right

MUSEUM = Museum("naive_decode")

START = "tokens = prompt.clone()"
CHOOSE = "greedy_next(model(tokens)[:, -1])"
APPEND = "tokens = torch.cat([tokens, new.unsqueeze(1)], dim=1)"
ROOM = "model.config.max_seq_len - prompt.shape[1]"
CHECK_PROMPT = "model.check_tokens(prompt)"
CHECK_N_NEW = f'check_between("n_new", n_new, 0, {ROOM})'

bug, patch = MUSEUM.section("generate_naive", check="result_starts_with_the_prompt")
patch(
    "nothing_for_nothing",
    "form",
    "an empty result where no new tokens were asked for",
    "Where no new tokens are wanted, nothing comes back: not even the prompt.",
    ("return tokens", "return tokens if n_new else tokens[:, :0]"),
)
patch(
    "always_writes_something",
    "off by one",
    "a first token that is written even when none was asked for",
    "The first token is chosen before the loop, so that no tokens are one token.",
    (START, "tokens = torch.cat([prompt, greedy_next(model(prompt)[:, -1])[:, None]], dim=1)"),
    ("range(n_new)", "range(n_new - 1)"),
)
patch(
    "returns_only_the_new_tokens",
    "form",
    "a result without the prompt",
    "Cuts the prompt off, as a chat window would.",
    ("return tokens", "return tokens[:, prompt.shape[1] :]"),
)
patch(
    "one_token_too_many",
    "off by one",
    "a loop that turns once too often",
    "Turns the loop n_new + 1 times.",
    ("range(n_new)", "range(n_new + 1)"),
)
patch(
    "collects_into_floats",
    "form",
    "a result whose ids have become floats",
    "torch.zeros without a dtype: ids become floats.",
    (START, "tokens = torch.zeros(prompt.shape) + prompt"),
    ("model(tokens)", "model(tokens.long())"),
)
patch(
    "loses_the_batch_of_one",
    "form",
    "a result that drops an axis of size 1",
    "squeeze() takes the batch away when it is 1.",
    ("return tokens", "return tokens.squeeze()"),
)

bug, patch = MUSEUM.section("generate_naive", check="every_new_token_is_the_likeliest")
patch(
    "reads_the_first_position",
    "choice",
    "a choice made from the logits of the first position",
    "Takes the logits of position 0 instead of the last.",
    ("[:, -1]", "[:, 0]"),
)
patch(
    "feeds_the_last_token_only",
    "feeding",
    "a model that is fed one token and has forgotten all before it",
    "Feeds one token without a cache: the model has forgotten all before it.",
    ("model(tokens)", "model(tokens[:, -1:])"),
)
patch(
    "feeds_the_prompt_every_time",
    "feeding",
    "a model that never reads what it wrote",
    "Never feeds back what was written: one word, again.",
    ("model(tokens)", "model(prompt)"),
)
patch(
    "first_row_decides",
    "choice",
    "a batch in which the first row chooses for all",
    "logits[0, -1]: every row gets the word of the first.",
    (CHOOSE, "model(tokens)[0, -1].argmax().repeat(len(tokens))"),
)
patch(
    "argmax_over_positions",
    "choice",
    "a maximum taken over the positions instead of the vocabulary",
    "argmax(dim=1) finds a position and takes it for an id.",
    (CHOOSE, "model(tokens).argmax(dim=1)[:, -1]"),
)
patch(
    "all_new_tokens_at_once",
    "choice",
    "several tokens chosen from the logits of one pass",
    "The n_new best first words in place of n_new words.",
    ("for _ in range(n_new):", "if n_new:"),
    (CHOOSE, "model(tokens)[:, -1].topk(n_new, dim=-1).indices"),
    ("new.unsqueeze(1)", "new"),
)
patch(
    "samples",
    "sampling",
    "tokens that are drawn where the likeliest was asked for",
    "Draws from the distribution where the likeliest is asked for.",
    (START, "tokens, generator = prompt.clone(), torch.Generator().manual_seed(0)"),
    (CHOOSE, "model(tokens)[:, -1].softmax(-1).multinomial(1, generator=generator)"),
    ("new.unsqueeze(1)", "new"),
)

bug, patch = MUSEUM.section("generate_naive", check="prompt_is_left_alone")
patch(
    "hands_back_the_prompt_itself",
    "state",
    "a result that is the caller's own tensor",
    "For n_new=0 the loop never makes a new tensor.",
    (START, "tokens = prompt"),
)
patch(
    "makes_room_in_the_prompt",
    "state",
    "a function that resizes the caller's prompt",
    "resize_ makes room in the caller's own tensor.",
    ("return tokens", "prompt.resize_(tokens.shape).copy_(tokens)\n    return tokens"),
)
patch(
    "slides_the_prompt_along",
    "state",
    "a function that writes into the caller's prompt",
    "Shifts the caller's prompt to keep its length.",
    ("model(tokens)", "model(prompt)"),
    (APPEND, f"{APPEND}\n        prompt.copy_(tokens[:, -prompt.shape[1] :])"),
)

bug, patch = MUSEUM.section("generate_naive", check="bad_requests_are_refused")
patch(
    "trusts_the_caller",
    "arguments",
    "a function that looks at none of its arguments",
    "range(-1) is empty: a negative n_new looks like success.",
    (CHECK_PROMPT, ""),
    (CHECK_N_NEW, ""),
)
patch(
    "lets_the_model_refuse_an_empty_prompt",
    "arguments",
    "a function that leaves an empty prompt to the forward pass, of which there may be none",
    "The model refuses to read nothing, but for n_new=0 it is never asked.",
    (CHECK_PROMPT, ""),
)
patch(
    "rounds_what_is_no_whole_number",
    "arguments",
    "a function that quietly makes a whole number of n_new",
    "int(2.5) is 2: half a token is lost.",
    (CHECK_PROMPT, f"n_new = int(n_new)\n    {CHECK_PROMPT}"),
)
patch(
    "lets_the_model_complain",
    "arguments",
    "a function that finds out about the length only when the model refuses it",
    "Too long is found out after minutes of work.",
    (ROOM, "10**9"),
)
patch(
    "asserts",
    "arguments",
    "a function that refuses by assert",
    "AssertionError, and none at all under python -O.",
    (CHECK_PROMPT, "assert prompt.shape[1] > 0"),
    (CHECK_N_NEW, f"assert type(n_new) is int and 0 <= n_new <= {ROOM}, n_new"),
)
patch(
    "takes_one_token_less_than_none",
    "off by one",
    "a function that takes an n_new of -1 for a request",
    "The lowest n_new is counted from -1; range(-1) is empty, so nobody notices.",
    ('"n_new", n_new, 0', '"n_new", n_new, -1'),
)
patch(
    "refuses_to_write_nothing",
    "off by one",
    "a function that refuses an n_new of 0",
    "The lowest n_new is counted from 1, but no new tokens are a request like any other.",
    ('"n_new", n_new, 0', '"n_new", n_new, 1'),
)
patch(
    "refuses_what_just_fits",
    "capacity",
    "a limit that leaves the last place unused",
    ">= in place of >: the last place stays empty.",
    (ROOM, f"{ROOM} - 1"),
)
patch(
    "takes_one_too_many",
    "capacity",
    "a limit that lets in one token more than there are places",
    "The last token is chosen and never fed in, so the model does not complain.",
    (ROOM, f"{ROOM} + 1"),
)
patch(
    "forgets_the_prompt_in_the_limit",
    "capacity",
    "a limit for the new tokens alone, without the prompt before them",
    "n_new is held against max_seq_len, of which the prompt has taken its part.",
    (ROOM, "model.config.max_seq_len"),
)
patch(
    "takes_the_batch_for_the_prompt",
    "capacity",
    "a limit that counts the rows of the batch in place of the prompt's tokens",
    "shape[0] in place of shape[1].",
    ("prompt.shape[1])", "prompt.shape[0])"),
)


@bug("arguments", "a refusal that does not say what was wrong")
def names_nothing(model, prompt, n_new):
    """A ValueError that leaves the caller guessing."""
    try:
        return right.generate_naive(model, prompt, n_new)
    except ValueError:
        raise ValueError("bad input") from None


bug, patch = MUSEUM.section("generate_naive", check="each_step_reads_everything")
patch(
    "looks_one_token_too_far",
    "cost",
    "one forward pass whose token nobody wants",
    "The last forward pass chooses a token nobody wants.",
    ("return tokens", f"{CHOOSE}\n    return tokens"),
)
patch(
    "reads_the_empty_places_too",
    "cost",
    "a model that reads places which are still empty",
    "Runs the whole buffer, zeros included, every time.",
    (START, "tokens = torch.cat([prompt, prompt.new_zeros(len(prompt), n_new)], dim=1)"),
    ("for _ in range(n_new)", "for n in range(prompt.shape[1], tokens.shape[1])"),
    ("[:, -1]", "[:, n - 1]"),
    (APPEND, "tokens[:, n] = new"),
)
patch(
    "starts_over_for_every_token",
    "cost",
    "a text that is generated from its prompt again for every new token",
    "Generates all from the prompt again, one token longer each time.",
    ("for _ in range(n_new)", "for step in [step for n in range(n_new) for step in range(n + 1)]"),
    ("        new =", "        tokens = prompt.clone() if step == 0 else tokens\n        new ="),
)

bug, _ = MUSEUM.section("kv_rows_naive", check="naive_rows_add_up")


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


bug, _ = MUSEUM.section("kv_rows_needed", check="needed_rows_add_up")


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


bug, _ = MUSEUM.section("attention_visits", check="visits_add_up")


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
