"""The visible checks of lesson 10. Their truth is the model without a cache, the rows that were fed, or
what the oracle counted.
"""

from course.checks.paged_cache.allocating import a_refusal_is_whole, blocks_are_given_once
from course.checks.paged_cache.counting import (
    blocks_follow_the_length,
    full_changes_nothing,
    one_block_is_copied,
)
from course.checks.paged_cache.prefixes import (
    keys_say_the_whole_past,
    reuse_leaves_a_token,
    saved_share_of_flops,
)
from course.checks.paged_cache.reading import every_split_through_any_table, forks_stay_apart

__all__ = [
    "a_refusal_is_whole",
    "blocks_are_given_once",
    "blocks_follow_the_length",
    "every_split_through_any_table",
    "forks_stay_apart",
    "full_changes_nothing",
    "keys_say_the_whole_past",
    "one_block_is_copied",
    "reuse_leaves_a_token",
    "saved_share_of_flops",
]
