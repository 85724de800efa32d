"""The visible checks of lesson 07. Their truth is a property: an error of half a step at most, so many
bits, so many bytes. Symmetric and asymmetric quantizers both have it.
"""

from course.checks.quantized_cache.going_back import (
    a_refusal_changes_nothing,
    quantized_cache_can_go_back,
)
from course.checks.quantized_cache.groups import (
    groups_and_a_window,
    keys_by_channel_values_by_token,
)
from course.checks.quantized_cache.packing import two_codes_share_a_byte
from course.checks.quantized_cache.rounding import (
    codes_fit_their_bits,
    flat_vectors_stay_finite,
    half_a_step_at_most,
)
from course.checks.quantized_cache.sizes import bytes_match_codes_scales_window
from course.checks.quantized_cache.splits import every_split_leaves_the_same

__all__ = [
    "a_refusal_changes_nothing",
    "bytes_match_codes_scales_window",
    "codes_fit_their_bits",
    "every_split_leaves_the_same",
    "flat_vectors_stay_finite",
    "groups_and_a_window",
    "half_a_step_at_most",
    "keys_by_channel_values_by_token",
    "quantized_cache_can_go_back",
    "two_codes_share_a_byte",
]
