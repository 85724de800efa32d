"""The hidden checks of lesson 12: the visible ones, on inputs that nobody knows.

What a text must be, the oracle says in float64; means are added up over everything that can happen.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from autograder import oracle
from course.checks import speculative as visible
from course.checks.check import Challenge, by_name


def logits(challenge: Challenge, tokens: np.ndarray) -> np.ndarray:
    """Compute the oracle's logits, (B, T, V), float64."""
    return oracle.forward(challenge["state"], challenge["config"], tokens)


def keep(draft: np.ndarray, logits: np.ndarray) -> list[int]:
    """Count guesses that equal the largest logit of their row, up to the first that does not."""
    best = [max(range(len(row)), key=lambda token, row=row: float(row[token])) for row in logits]
    for place, guess in enumerate(draft.tolist()):
        if guess != best[place]:
            return [place, best[place]]
    return [len(draft), best[-1]]


def look_up(text: np.ndarray, n_draft: int, longest: int = 3) -> list[int]:
    """Find every earlier place of every ending, and take the longest and then the latest."""
    tokens, found = text.tolist(), []
    for end in range(1, len(tokens)):  # what stands before place `end` is compared
        for n in range(1, min(longest, end) + 1):
            if tokens[end - n : end] == tokens[len(tokens) - n :]:
                found.append((n, end))
    return tokens[max(found)[1] :][:n_draft] if found else []


def mean_tokens(acceptance: float, n_draft: int) -> float:
    """Add up the tokens of a pass over all ways in which its guesses can be right and wrong."""
    mean = 0.0
    for right in product((True, False), repeat=n_draft):
        odds = float(np.prod([acceptance if one else 1 - acceptance for one in right]))
        kept = right.index(False) if False in right else n_draft
        mean += odds * (kept + 1)
    return mean


CHECKS = by_name(
    visible.only_right_guesses_are_kept.hidden(truth=keep),
    visible.every_draft_gives_the_same_text.hidden(truth=logits),
    visible.passes_are_saved,
    visible.cache_is_left_as_alone.hidden(truth=logits),
    visible.lookup_copies_what_followed.hidden(truth=look_up),
    visible.first_token_has_the_models_odds,
    visible.so_have_the_second_and_the_bonus,
    visible.accepts_as_often_as_possible,
    visible.expected_tokens_add_up.hidden(truth=mean_tokens),
)
