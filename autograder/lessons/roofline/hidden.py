"""The hidden checks of lesson 05: bills added up matrix by matrix, clocks that are known exactly."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from course.checks import roofline as visible
from course.checks.check import Challenge, by_name
from course.checks.roofline.passes import Bill, Call, Sizes, draw_configs


def bill(config: Sizes, call: Call) -> Bill:
    """Add up every product (rows, k) times (k, n) of a forward pass, and attention token by token."""
    L, C, f, V = (config[name] for name in ("n_layers", "d_model", "d_ff", "vocab_size"))
    H, G = config["n_heads"], config["n_kv_heads"]
    D, B, size = C // H, call.batch, call.bytes_per_element
    rows = B * call.n_new
    layer = [(rows, C, H * D), (rows, C, G * D), (rows, C, G * D), (rows, H * D, C)]
    layer += [(rows, C, f), (rows, C, f), (rows, f, C)]
    products = [*layer * L, (B, C, V)]
    seen_by = [call.n_past + own + 1 for own in range(call.n_new)]  # tokens, by each new one
    token_bytes = sum(L * B * G * D * size for _ in "kv")
    return {
        "matrix_flops": sum(2 * m * k * n for m, k, n in products),
        "attention_flops": sum(4 * D * seen for seen in seen_by) * H * L * B,
        "weight_bytes": sum(k * n for _, k, n in products) * size,
        "kv_read_bytes": token_bytes * seen_by[-1],
        "kv_written_bytes": token_bytes * len(seen_by),
        "activation_bytes": sum(m * k + m * n for m, k, n in products) * size,
    }


def draw_passes(seed: int) -> Challenge:
    """Draw as the visible checks do, longer and wider, and with elements of one byte and of eight."""
    rng = np.random.default_rng(seed)
    configs = draw_configs(rng)
    T, P, B = (int(n) for n in rng.choice(np.arange(2, 90), 3, replace=False))
    calls = [(1, 0, 1, 4), (T, 0, 1, 4), (T, P, 1, 1), (1, P, B, 8), (T, P + T + 1, B, 2)]
    return {"configs": configs, "calls": calls}


def attainable(intensity: float, machine: dict[str, Any]) -> float:
    """Cut what the bytes of one second allow off at what the machine can do in a second."""
    fed = intensity * machine["bytes_per_second"]
    return fed if fed < machine["flops_per_second"] else machine["flops_per_second"]


def bound(cost: dict[str, int], machine: dict[str, Any]) -> str:
    """Tell on which side of the ridge a cost lies: left of it bytes are short."""
    moved = math.fsum(n for name, n in cost.items() if name != "flops")
    left = cost["flops"] * machine["bytes_per_second"] < machine["flops_per_second"] * moved
    return "memory" if left else "compute"


CHECKS = by_name(
    visible.attention_is_causal.hidden(truth=bill, challenge=draw_passes),
    visible.matrices_match_the_counter.hidden(truth=bill, challenge=draw_passes),
    visible.weights_are_read_once.hidden(truth=bill, challenge=draw_passes),
    visible.cache_is_read_and_written.hidden(truth=bill, challenge=draw_passes),
    visible.activations_go_in_and_out.hidden(truth=bill, challenge=draw_passes),
    visible.roof_has_two_parts.hidden(truth=attainable),
    visible.bound_is_the_lower_roof.hidden(truth=bound),
    visible.clock_waits_for_the_work.hidden(truth=statistics.median),
    visible.warm_up_is_not_timed.hidden(truth=statistics.median),
    visible.one_slow_repeat_changes_nothing.hidden(truth=statistics.median),
)
