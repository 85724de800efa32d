"""Wrong answers to `greedy_next`."""

import torch

from autograder.lessons.mini_gpt.museum import MUSEUM

bug = MUSEUM.section("greedy_next", check="greedy_takes_the_likeliest")

TOKENS = torch.zeros(4096, dtype=torch.int64)


@bug("state", "tokens that lie where the next call writes", kind="results")
def one_buffer_for_all_tokens(logits):
    """One result tensor for all calls."""
    if logits.dim() != 2:
        raise ValueError("logits must be (B, V)")
    out = TOKENS[: len(logits)]
    out.copy_(logits.argmax(dim=-1))
    return out
