"""The visible checks of lesson 03. Their truth is the model without a cache, or a property."""

from course.checks.kv_cache.forward import (
    every_split_equals_uncached,
    layer_equals_uncached,
    mask_is_rectangular,
)
from course.checks.kv_cache.generation import no_row_is_computed_twice
from course.checks.kv_cache.growing import copies_add_up, growing_cache_returns_everything
from course.checks.kv_cache.holding import (
    cache_can_go_back,
    cache_returns_what_it_was_given,
    full_cache_changes_nothing,
)
from course.checks.kv_cache.memory import cache_is_the_only_memory, two_conversations_stay_apart
from course.checks.kv_cache.storage import bytes_match_the_storage

__all__ = [
    "bytes_match_the_storage",
    "cache_can_go_back",
    "cache_is_the_only_memory",
    "cache_returns_what_it_was_given",
    "copies_add_up",
    "every_split_equals_uncached",
    "full_cache_changes_nothing",
    "growing_cache_returns_everything",
    "layer_equals_uncached",
    "mask_is_rectangular",
    "no_row_is_computed_twice",
    "two_conversations_stay_apart",
]
