"""The visible checks of lesson 13. What they compare with was computed head by head, expanded, and
recorded; or it is the rows that were stored.
"""

from course.checks.latent_attention.absorbing import absorbed_scores_are_the_scores
from course.checks.latent_attention.holding import can_go_back, full_changes_nothing, rows_come_back
from course.checks.latent_attention.layers import (
    every_split_equals_the_paper,
    nothing_is_expanded,
    rows_are_the_only_memory,
)
from course.checks.latent_attention.storage import bytes_match_the_rows

__all__ = [
    "absorbed_scores_are_the_scores",
    "bytes_match_the_rows",
    "can_go_back",
    "every_split_equals_the_paper",
    "full_changes_nothing",
    "nothing_is_expanded",
    "rows_are_the_only_memory",
    "rows_come_back",
]
