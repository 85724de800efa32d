"""The visible checks of lesson 12. What a text must be, the model says without a cache; what odds must
be, stands in the challenge.
"""

from course.checks.speculative.guessing import (
    expected_tokens_add_up,
    lookup_copies_what_followed,
    only_right_guesses_are_kept,
)
from course.checks.speculative.sampling import (
    accepts_as_often_as_possible,
    first_token_has_the_models_odds,
    so_have_the_second_and_the_bonus,
)
from course.checks.speculative.writing import (
    cache_is_left_as_alone,
    every_draft_gives_the_same_text,
    passes_are_saved,
)

__all__ = [
    "accepts_as_often_as_possible",
    "cache_is_left_as_alone",
    "every_draft_gives_the_same_text",
    "expected_tokens_add_up",
    "first_token_has_the_models_odds",
    "lookup_copies_what_followed",
    "only_right_guesses_are_kept",
    "passes_are_saved",
    "so_have_the_second_and_the_bonus",
]
