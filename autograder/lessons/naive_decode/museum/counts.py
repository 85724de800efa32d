"""Wrong answers to the three counts."""

import torch

from autograder.lessons.naive_decode.museum import MUSEUM

bug = MUSEUM.section("kv_rows_naive", check="naive_rows_add_up")


@bug("off by one", "a count in which a step reads the token that it is about to make")
def counts_the_new_token_too(p, g):
    """Step 1 reads p tokens, not p + 1."""
    return g * p + g * (g + 1) // 2


@bug("formula", "a count in which the length of the prompt plays no part")
def forgets_the_prompt(p, g):
    """1 + 2 + … + g, whatever the prompt."""
    return g * (g + 1) // 2


@bug("off by one", "a triangle of steps that is taken for half a square")
def rounds_the_triangle(p, g):
    """g²/2 in place of g(g-1)/2."""
    return g * p + g * g / 2


@bug("off by one", "a triangle of steps that is taken for half a square")
def rounds_the_triangle_down(p, g):
    """g²/2 in place of g(g-1)/2, and no halves."""
    return g * p + g * g // 2


@bug("formula", "a count of the rows that are computed again, without the first time")
def counts_the_waste_alone(p, g):
    """What is computed, without what is needed."""
    return g * p + g * (g - 1) // 2 - (p + g - 1 if g else 0)


@bug(
    "form", "a count that calls itself once for each step, and ends at 1,000 of them", kind="sizes"
)
def counts_by_recursion(p, g):
    """Right for short texts; then Python has no room for another call."""
    return p + counts_by_recursion(p + 1, g - 1) if g else 0


@bug("formula", "a count that feeds the prompt in token by token as well")
def triangle_of_everything(p, g):
    """Feeds the prompt in token by token as well."""
    return (p + g) * (p + g + 1) // 2


@bug("formula", "a count in which every step is as long as the last text")
def square_of_everything(p, g):
    """g steps of p + g rows: but steps get longer one by one."""
    return g * (p + g)


@bug("formula", "a count of the rows that are needed, once each")
def counts_what_is_needed(p, g):
    """The other count: each row once."""
    return p + g - 1 if g else 0


@bug("off by one", "a count in which the prompt is read although nothing is wanted")
def reads_the_prompt_for_nothing(p, g):
    """g = 0 is no forward pass at all."""
    return max(1, g) * p + g * (g - 1) // 2


@bug("formula", "a count of the prompt once, and of a triangle for the new tokens")
def prompt_once_and_a_triangle(p, g):
    """The prompt is added where it should be multiplied by g."""
    return p + g * (g - 1) // 2


@bug("off by one", "a sum of steps with one step too many")
def one_step_too_many(p, g):
    """range(p, p + g + 1): the text that is left at the end is read once more."""
    return sum(range(p, p + g + 1))


@bug("off by one", "a half that is rounded before it is multiplied")
def rounds_the_average(p, g):
    """Integer division by 2 before multiplying."""
    return (p + p + g - 1) // 2 * g


@bug("form", "a count that is printed, or left in a name, and not returned")
def does_not_return_the_rows(p, g):
    """The line that returns is missing: the caller gets None."""
    _ = g * p + g * (g - 1) // 2


bug = MUSEUM.section("kv_rows_needed", check="needed_rows_add_up")


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


@bug("off by one", "a count that takes a single new token for none")
def one_is_none(p, g):
    """g > 1 in place of g > 0."""
    return p + g - 1 if g > 1 else 0


@bug("formula", "a count of the prompt alone")
def the_prompt_is_enough(p, g):
    """New tokens that are fed back need their rows too; and nothing is needed for nothing."""
    return p


@bug("off by one", "a count that needs the prompt even where nothing is wanted")
def needs_the_prompt_for_nothing(p, g):
    """max(p, …): right for every request but the empty one."""
    return max(p, p + g - 1)


@bug(
    "off by one",
    "a count with a row for the last token, which is never fed in, but none for nothing",
)
def last_token_but_for_nothing(p, g):
    """g = 0 is thought of, the last token is not."""
    return p + g if g else 0


@bug("formula", "a count of keys and values, where one row stands for both")
def counts_keys_and_values(p, g):
    """Twice the right number."""
    return 2 * (p + g - 1) if g else 0


@bug(
    "form", "a count that calls itself once for each step, and ends at 1,000 of them", kind="sizes"
)
def needs_a_call_for_each_step(p, g):
    """Right for short texts; then Python has no room for another call."""
    return 1 + needs_a_call_for_each_step(p, g - 1) if g > 1 else p * g


bug = MUSEUM.section("attention_visits", check="visits_add_up")


@bug("off by one", "a count in which a step looks at the token that it is about to make")
def looks_at_itself_before_it_is_there(prompt_len, n_new):
    """Counts P + 1 at step 1."""
    return sum(range(prompt_len + 1, prompt_len + n_new + 1))


@bug("formula", "a count in which the length of the prompt plays no part")
def prompt_ends_after_prefill(prompt_len, n_new):
    """Takes the prompt for paid once it has been read."""
    return n_new * (n_new + 1) // 2


@bug("formula", "a count in which nobody looks at what was written")
def prompt_is_all_there_is(prompt_len, n_new):
    """Forgets that what was written is looked at, too."""
    return prompt_len * n_new


@bug("formula", "an average with the number of new tokens in the place of the last step")
def last_step_looks_at_n_new(prompt_len, n_new):
    """The mean of P and T positions: right after a prompt of one token."""
    return n_new * (prompt_len + n_new) // 2


@bug("formula", "a half that is rounded before it is multiplied")
def average_rounded_down(prompt_len, n_new):
    """Integer division by 2 before multiplying."""
    return (prompt_len + prompt_len + n_new - 1) // 2 * n_new


@bug("off by one", "a count in which a token looks at what is before it, and not at itself")
def does_not_look_at_itself(prompt_len, n_new):
    """P - 1 at step 1."""
    return sum(range(prompt_len - 1, prompt_len + n_new - 1))


@bug("formula", "a count of the pairs of all tokens at every step")
def everybody_looks(prompt_len, n_new):
    """All tokens look, not the last one alone: what naive decode really does, and not what is asked."""
    return sum((prompt_len + step) * (prompt_len + step + 1) // 2 for step in range(n_new))


@bug("formula", "a count of the last step alone")
def last_step_alone(prompt_len, n_new):
    """P + T - 1, without the steps before."""
    return prompt_len + n_new - 1 if n_new else 0


@bug("off by one", "a triangle of steps that is taken for half a square")
def half_a_square_of_visits(prompt_len, n_new):
    """T²/2 in place of T(T-1)/2."""
    return prompt_len * n_new + n_new * n_new // 2


@bug(
    "form", "a count that calls itself once for each step, and ends at 1,000 of them", kind="sizes"
)
def visits_by_recursion(prompt_len, n_new):
    """Right for short texts; then Python has no room for another call."""
    return prompt_len + visits_by_recursion(prompt_len + 1, n_new - 1) if n_new else 0


@bug("off by one", "a sum of steps with one step too many")
def one_visit_too_many(prompt_len, n_new):
    """range(P, P + T + 1): T + 1 steps."""
    return sum(range(prompt_len, prompt_len + n_new + 1))


@bug("formula", "a count of all pairs, allowed or not")
def squares_of_everybody(prompt_len, n_new):
    """Every token with every other at every step: a whole square of scores, not its last row."""
    return sum((prompt_len + step) ** 2 for step in range(n_new))


@bug("off by one", "a count in which the prompt is looked at although nothing is wanted")
def looks_for_nothing(prompt_len, n_new):
    """T = 0 is no step at all."""
    return max(1, n_new) * prompt_len + n_new * (n_new - 1) // 2


@bug("rounding", "a sum in numbers of 32 bits with seven digits", kind="sizes")
def visits_in_float32(p, g):
    """Adds up a tensor of floats."""
    return int(torch.arange(p, p + g, dtype=torch.float32).sum())
