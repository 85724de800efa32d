"""The visible checks of lesson 08. Their truth is recorded, or a property."""

from course.checks.sliding_window.forward import every_split_equals_the_windowed_model
from course.checks.sliding_window.holding import (
    append_alone_changes_nothing,
    gone_is_gone_kept_is_kept,
)
from course.checks.sliding_window.masks import (
    mask_counts_itself,
    one_place_each,
    sinks_are_no_future,
)
from course.checks.sliding_window.returning import refusal_and_return
from course.checks.sliding_window.sizes import bytes_by_layer, bytes_stay

__all__ = [
    "append_alone_changes_nothing",
    "bytes_by_layer",
    "bytes_stay",
    "every_split_equals_the_windowed_model",
    "gone_is_gone_kept_is_kept",
    "mask_counts_itself",
    "one_place_each",
    "refusal_and_return",
    "sinks_are_no_future",
]
