"""The hidden checks of lesson 05: bills added up matrix by matrix, clocks that are known exactly."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from autograder.lessons.whole import whole
from course.checks.check import Challenge, Check, Evidence, by_name
from course.checks.roofline import counting, roofs, timing


def bill(config: dict[str, Any], call: counting.Call) -> counting.Bill:
    """Every product (rows, k) times (k, n) of one forward pass, and attention token by token."""
    L, C, f, V = (config[name] for name in ("n_layers", "d_model", "d_ff", "vocab_size"))
    H, G = config["n_heads"], config["n_kv_heads"]
    D, B, size = C // H, call.batch, call.bytes_per_element
    rows = B * call.n_new
    layer = [(rows, C, H * D), (rows, C, G * D), (rows, C, G * D), (rows, H * D, C)]
    layer += [(rows, C, f), (rows, C, f), (rows, f, C)]
    products = [*layer * L, (B, C, V)]
    looks = [[*range(call.n_past + own + 1)] for own in range(call.n_new)]
    visible_tokens = len(looks[-1])
    return {
        "matrix_flops": sum(2 * m * k * n for m, k, n in products),
        "attention_flops": sum(4 * D * len(seen) for seen in looks) * H * L * B,
        "weight_bytes": sum(k * n for _, k, n in products) * size,
        "kv_read_bytes": sum(L * B * G * D * visible_tokens * size for _ in "kv"),
        "kv_written_bytes": sum(L * B * G * D * len(looks) * size for _ in "kv"),
        "activation_bytes": sum(m * k + m * n for m, k, n in products) * size,
    }


def draw_calls(rng: np.random.Generator) -> counting.Calls:
    """As the visible ones, longer and wider, and with elements of one byte and of eight."""
    T, P, B = (int(n) for n in rng.choice(np.arange(2, 90), 3, replace=False))
    return [(1, 0, 1, 4), (T, 0, 1, 4), (T, P, 1, 1), (1, P, B, 8), (T, P + T + 1, B, 2)]


def attainable(intensity: float, machine: dict[str, Any]) -> float:
    """What the bytes of one second allow, cut off at what the machine can do in a second."""
    fed = intensity * machine["bytes_per_second"]
    return fed if fed < machine["flops_per_second"] else machine["flops_per_second"]


def bound(cost: dict[str, int], machine: dict[str, Any]) -> str:
    """Left of the ridge bytes are short."""
    moved = math.fsum(n for name, n in cost.items() if name != "flops")
    left = cost["flops"] * machine["bytes_per_second"] < machine["flops_per_second"] * moved
    return "memory" if left else "compute"


def all_calls(part: str):
    """Whether a part of the evidence has an entry for each call of each model."""

    def is_whole(challenge: Challenge, evidence: Evidence) -> bool:
        return len(evidence[part]) == len(counting.cases(challenge))

    return is_whole


def all_fields(check: Check) -> Check:
    """The check, for which a bill without a field is no bill."""
    fields = {
        "matrices_match_the_counter": {"flops", "attention_flops"},
        "weights_are_read_once": {"weight_bytes"},
        "cache_is_read_and_written": {"kv_written_bytes", "kv_read_bytes"},
        "activations_go_in_and_out": {"activation_bytes"},
    }[check.name]
    return whole(
        check,
        lambda challenge, evidence: (
            all_calls("bills")(challenge, evidence)
            and all(one.keys() in ({"kind"}, fields) for one in evidence["bills"])
        ),
    )


CHECKS = by_name(
    whole(counting.make_attention(bill, draw_calls), all_calls("attention_flops")),
    all_fields(counting.make_matrices(bill, draw_calls)),
    all_fields(counting.make_weights(bill, draw_calls)),
    all_fields(counting.make_cache(bill, draw_calls)),
    all_fields(counting.make_activations(bill, draw_calls)),
    roofs.make_attainable(attainable),
    roofs.make_bound(bound),
    timing.make_waiting(statistics.median),
    timing.make_warming_up(statistics.median),
    timing.make_outlier(statistics.median),
)
