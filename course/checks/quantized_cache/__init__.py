"""The visible checks of lesson 07. Their truth is a property: an error of half a step at most, so many
bits, so many bytes. Symmetric and asymmetric quantizers both have it.

The makers (`..._verdict(truth)`) are shared with the hidden checks, which bring another truth.
"""

from course.checks.quantized_cache.container import (
    a_refusal_changes_nothing,
    every_split_leaves_the_same,
    groups_and_a_window,
    keys_by_channel_values_by_token,
    quantized_cache_can_go_back,
)
from course.checks.quantized_cache.rounding import (
    codes_fit_their_bits,
    flat_vectors_stay_finite,
    half_a_step_at_most,
    two_codes_share_a_byte,
)
from course.checks.quantized_cache.sizes import bytes_match_codes_scales_window

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
