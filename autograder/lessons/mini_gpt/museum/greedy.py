"""Wrong answers to `greedy_next`."""

import torch

from autograder.lessons.mini_gpt.museum import MUSEUM

bug, patch = MUSEUM.section("greedy_next", check="greedy_takes_the_likeliest")
patch(
    "over_the_batch",
    "choice",
    "a maximum taken over the batch",
    "argmax(dim=0): for each token the row that likes it best.",
    ("dim=-1", "dim=0"),
)
patch(
    "column",
    "form",
    "a column where one token a row was asked for",
    "keepdim=True: (B, 1), which later concatenates by accident and then fails.",
    ("dim=-1", "dim=-1, keepdim=True"),
)
patch(
    "value_not_index",
    "choice",
    "the best logit in the place of the token that has it",
    "max().values: the logit itself, not the token that has it.",
    ("argmax(dim=-1)", "max(dim=-1).values"),
)
patch(
    "flat_batch",
    "choice",
    "one token for all rows, the best of the whole batch",
    "argmax() of the whole tensor: one number for all rows.",
    ("argmax(dim=-1)", "argmax().expand(len(logits))"),
)
patch(
    "flat_number",
    "form",
    "one number for the whole batch",
    "argmax() of the whole tensor, as a batch of one.",
    ("logits.argmax(dim=-1)", "logits.argmax().reshape(1)"),
)
patch(
    "least_likely",
    "choice",
    "the least likely token",
    "The smallest logit, as if it were a loss.",
    ("argmax", "argmin"),
)
patch(
    "first_row_for_all_rows",
    "choice",
    "the first row's token for all rows",
    "logits[0]: written for one text.",
    ("logits.argmax(dim=-1)", "logits[0].argmax().repeat(len(logits))"),
    kind="batch",
)
patch(
    "batch_of_one_squeezed",
    "form",
    "a batch of one whose axis is dropped",
    "squeeze() turns one text's token into a number without an axis.",
    ("argmax(dim=-1)", "argmax(dim=-1, keepdim=True).squeeze()"),
    kind="batch",
)
patch(
    "tokens_in_int32",
    "form",
    "tokens in int32",
    "A token is small, so 32 bits would do; embeddings and lessons use 64.",
    ("argmax(dim=-1)", "argmax(dim=-1).int()"),
)
patch(
    "list_of_tokens",
    "form",
    "a list in the place of a tensor",
    "tolist() at the end, for printing.",
    ("argmax(dim=-1)", "argmax(dim=-1).tolist()"),
)
patch(
    "starts_at_0",
    "choice",
    "a search that starts at 0, though all logits may lie below",
    "The best so far begins with 0: where all logits are negative nothing is ever better.",
    (
        "return logits.argmax(dim=-1)",
        "return torch.where(logits > 0, logits, torch.zeros_like(logits)).argmax(dim=-1)",
    ),
)
patch(
    "exponentials_overflow",
    "choice",
    "exponentials that overflow, so that the first large logit wins",
    "exp() without taking the largest off: beyond 88 every float32 is infinite.",
    ("logits.argmax", "logits.exp().argmax"),
    kind="sizes",
)
patch(
    "compared_in_float32",
    "choice",
    "logits that are rounded to float32 before they are compared",
    "Two logits of float64 that differ late become equal, and the first one wins.",
    ("logits.argmax", "logits.float().argmax"),
    kind="dtype",
)
patch(
    "compared_in_float16",
    "choice",
    "logits that are rounded to float16 before they are compared",
    "Half the bytes to look at, and three digits.",
    ("logits.argmax", "logits.half().argmax"),
    kind="dtype",
)
patch(
    "words_of_the_small_model",
    "choice",
    "a choice among the first 243 tokens only",
    "The small model's vocabulary, written down as a number.",
    ("logits.argmax", "logits[:, :243].argmax"),
    kind="sizes",
)
patch(
    "one_view_of_all_logits",
    "form",
    "a view that takes logits to lie in memory without gaps",
    "view(-1) and back: refused for a slice or a transpose.",
    ("logits.argmax", "logits.view(-1).view(logits.shape).argmax"),
    kind="layout",
)
patch(
    "largest_taken_off_in_place",
    "state",
    "logits that are changed where the caller keeps them",
    "The largest is taken off in place, as if for a softmax.",
    (
        "return logits.argmax(dim=-1)",
        "logits -= logits.max(dim=-1, keepdim=True).values\n    return logits.argmax(dim=-1)",
    ),
    kind="arguments",
)

TOKENS = torch.zeros(4096, dtype=torch.int64)


@bug("state", "tokens that lie where the next call writes", kind="results")
def one_buffer_for_all_tokens(logits):
    """One result tensor for all calls."""
    if logits.dim() != 2:
        raise ValueError("logits must be (B, V)")
    out = TOKENS[: len(logits)]
    out.copy_(logits.argmax(dim=-1))
    return out
