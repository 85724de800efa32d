"""The visible checks of lesson 04. Their truth is the model without a cache, or plain arithmetic."""

from course.checks.prefill_and_decode.chunks import (
    every_chunk_size_gives_the_same_logits,
    too_long_a_prompt_changes_nothing,
)
from course.checks.prefill_and_decode.latency import first_token_is_no_gap
from course.checks.prefill_and_decode.ragged import (
    each_row_equals_itself_alone,
    pads_are_never_seen,
    pads_stand_on_the_left,
    positions_count_own_tokens,
)
from course.checks.prefill_and_decode.streaming import (
    no_step_before_it_is_asked_for,
    rollback_equals_a_fresh_start,
    stream_writes_the_uncached_text,
)

__all__ = [
    "each_row_equals_itself_alone",
    "every_chunk_size_gives_the_same_logits",
    "first_token_is_no_gap",
    "no_step_before_it_is_asked_for",
    "pads_are_never_seen",
    "pads_stand_on_the_left",
    "positions_count_own_tokens",
    "rollback_equals_a_fresh_start",
    "stream_writes_the_uncached_text",
    "too_long_a_prompt_changes_nothing",
]
