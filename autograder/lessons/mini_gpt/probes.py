"""The probes of lesson 01 are those of its visible checks."""

from __future__ import annotations

from course.checks import mini_gpt as visible

PROBES = {
    check.name: check.probe
    for check in (
        visible.heads_split_and_merge,
        visible.attention_sees_no_future,
        visible.attention_weighs_by_softmax,
        visible.query_heads_share_kv_heads,
        visible.layer_joins_its_parts,
        visible.layer_obeys_positions,
        visible.greedy_takes_the_likeliest,
        visible.sample_follows_temperature,
        visible.sample_stays_in_top_k,
        visible.bad_arguments_are_refused,
    )
}
