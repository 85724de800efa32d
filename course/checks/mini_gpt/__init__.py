"""The visible checks of lesson 01: properties that a student can reason about, and no answer."""

from __future__ import annotations

from course.checks.check import Check
from course.checks.mini_gpt import attention, choosing, heads, layers, probes
from course.checks.recorded import Recorded
from course.checks.tolerance import TOLERANCE

heads_split_and_merge = Check(
    "heads_split_and_merge",
    ("split_heads", "merge_heads"),
    heads.draw_heads,
    probes.probe_heads,
    heads.judge_heads,
    evidence=probes.heads_form,
    truth=Recorded("mini_gpt", "heads_split_and_merge"),
)
attention_sees_no_future = Check(
    "attention_sees_no_future",
    ("causal_attention",),
    attention.draw_nudged_tokens,
    probes.probe_attention,
    attention.judge_causality,
    evidence=probes.cases_form,
    tolerance=TOLERANCE,
)
attention_weighs_by_softmax = Check(
    "attention_weighs_by_softmax",
    ("causal_attention",),
    attention.draw_softmax,
    probes.probe_attention,
    attention.judge_softmax,
    evidence=probes.cases_form,
    truth=Recorded("mini_gpt", "attention_weighs_by_softmax"),
    tolerance=TOLERANCE,
)
query_heads_share_kv_heads = Check(
    "query_heads_share_kv_heads",
    ("causal_attention",),
    attention.draw_groups,
    probes.probe_attention,
    attention.judge_groups,
    evidence=probes.cases_form,
    tolerance=TOLERANCE,
)
layer_joins_its_parts = Check(
    "layer_joins_its_parts",
    ("attention_layer",),
    layers.draw_layer,
    probes.probe_layer,
    layers.judge_layer,
    evidence=probes.layers_form,
    truth=Recorded("mini_gpt", "layer_joins_its_parts"),
    tolerance=TOLERANCE,
)
layer_obeys_positions = Check(
    "layer_obeys_positions",
    ("attention_layer",),
    layers.draw_positions,
    probes.probe_layer,
    layers.judge_positions,
    evidence=probes.layers_form,
    truth=Recorded("mini_gpt", "layer_obeys_positions"),
    tolerance=TOLERANCE,
)
greedy_takes_the_likeliest = Check(
    "greedy_takes_the_likeliest",
    ("greedy_next",),
    choosing.draw_logits,
    probes.probe_greedy,
    choosing.judge_greedy,
    evidence=probes.cases_form,
    truth=Recorded("mini_gpt", "greedy_takes_the_likeliest"),
)
sample_follows_temperature = Check(
    "sample_follows_temperature",
    ("sample_next",),
    choosing.draw_temperatures,
    probes.probe_sampling,
    choosing.judge_temperatures,
    evidence=probes.sampling_form,
    truth=Recorded("mini_gpt", "sample_follows_temperature"),
)
sample_stays_in_top_k = Check(
    "sample_stays_in_top_k",
    ("sample_next",),
    choosing.draw_top_k,
    probes.probe_draws,
    choosing.judge_top_k,
    evidence=probes.cases_form,
    truth=Recorded("mini_gpt", "sample_stays_in_top_k"),
)
bad_arguments_are_refused = Check(
    "bad_arguments_are_refused",
    ("greedy_next", "sample_next"),
    choosing.draw_refusals,
    probes.probe_refusals,
    choosing.judge_refusals,
    evidence=probes.refusals_form,
)
