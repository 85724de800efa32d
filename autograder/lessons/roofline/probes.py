"""The probes of lesson 05 are those of its visible checks."""

from __future__ import annotations

from course.checks import roofline as visible

PROBES = {
    check.name: check.probe
    for check in (
        visible.attention_is_causal,
        visible.matrices_match_the_counter,
        visible.weights_are_read_once,
        visible.cache_is_read_and_written,
        visible.activations_go_in_and_out,
        visible.roof_has_two_parts,
        visible.bound_is_the_lower_roof,
        visible.clock_waits_for_the_work,
        visible.warm_up_is_not_timed,
        visible.one_slow_repeat_changes_nothing,
    )
}
