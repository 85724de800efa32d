"""The visible checks of lesson 02. Their truth is the model of lesson 01, or a hand-counted table."""

from course.checks.naive_decode.counting import (
    naive_rows_add_up,
    needed_rows_add_up,
    visits_add_up,
)
from course.checks.naive_decode.generation import (
    each_step_reads_everything,
    every_new_token_is_the_likeliest,
    prompt_is_left_alone,
    result_starts_with_the_prompt,
)
from course.checks.naive_decode.requests import bad_requests_are_refused

__all__ = [
    "bad_requests_are_refused",
    "each_step_reads_everything",
    "every_new_token_is_the_likeliest",
    "naive_rows_add_up",
    "needed_rows_add_up",
    "prompt_is_left_alone",
    "result_starts_with_the_prompt",
    "visits_add_up",
]
