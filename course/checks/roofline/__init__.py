"""The visible checks of lesson 05: bills, roofs, and a timer on a fake device."""

from course.checks.roofline.counting import (
    activations_go_in_and_out,
    attention_is_causal,
    cache_is_read_and_written,
    matrices_match_the_counter,
    weights_are_read_once,
)
from course.checks.roofline.roofs import bound_is_the_lower_roof, roof_has_two_parts
from course.checks.roofline.timing import (
    clock_waits_for_the_work,
    one_slow_repeat_changes_nothing,
    warm_up_is_not_timed,
)

__all__ = [
    "activations_go_in_and_out",
    "attention_is_causal",
    "bound_is_the_lower_roof",
    "cache_is_read_and_written",
    "clock_waits_for_the_work",
    "matrices_match_the_counter",
    "one_slow_repeat_changes_nothing",
    "roof_has_two_parts",
    "warm_up_is_not_timed",
    "weights_are_read_once",
]
