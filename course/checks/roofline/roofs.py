"""The two roofs, for machines that are drawn: which one is lower, and where."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import plain
from course.measure.costs import Cost
from course.measure.limits import Machine

Attainable = Callable[[float, dict[str, Any]], float]
"""FLOP/s at an intensity, on a machine given as a dict of its fields."""
Bound = Callable[[dict[str, int], dict[str, Any]], str]
"""The name of the lower roof, for a cost given as a dict of its fields."""
ROUNDING = 1e-6
"""Of the right rate: what a few float64 operations, or one of float32, may be off by."""


def draw_machine(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a machine of 2 to 400 FLOP/byte."""
    bytes_per_second = float(rng.uniform(10, 3000)) * 1e9
    balance = float(np.exp(rng.uniform(np.log(2), np.log(400))))
    return {
        "name": "a drawn machine",
        "flops_per_second": bytes_per_second * balance,
        "bytes_per_second": bytes_per_second,
    }


def balance_of(machine: dict[str, Any]) -> float:
    """Divide FLOP/s by bytes/s: where the ridge lies."""
    return machine["flops_per_second"] / machine["bytes_per_second"]


# --- attainable ----------------------------------------------------------------------------------


def draw_intensities(seed: int) -> Challenge:
    """Draw machines, each with intensities left of its ridge, near it on both sides, and right of it."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(3):
        machine = draw_machine(rng)
        places = [1 / balance_of(machine), rng.uniform(0.02, 0.5), 0.9, 1.1, rng.uniform(3, 30)]
        intensities = [float(place * balance_of(machine)) for place in places]
        drawn.append({"machine": machine, "intensities": intensities})
    return {"cases": drawn}


def probe_attainable(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return {
        "rates": [
            [
                plain(student.attainable(intensity, Machine(**case["machine"])))
                for intensity in case["intensities"]
            ]
            for case in challenge["cases"]
        ]
    }


def judge_attainable(
    challenge: Challenge, evidence: Evidence, truth: Attainable, tolerance: float
) -> Verdict:
    for case, rates in zip(challenge["cases"], evidence["rates"], strict=True):
        machine = case["machine"]
        for intensity, got in zip(case["intensities"], rates, strict=True):
            right = truth(intensity, machine)
            given = (
                f"A machine of {machine['flops_per_second']:.4g} FLOP/s and "
                f"{machine['bytes_per_second']:.4g} bytes/s, work of {intensity:.4g} FLOP/byte"
            )
            if isinstance(got, str):
                return failed(f"{given}: attainable gave {got}; wanted is one number. Which?")
            if not abs(got - right) <= tolerance * right:
                question = ask_about_the_roof(intensity, machine, got)
                return failed(f"{given}: {got:.4g}; it can reach {right:.4g}. {question}")
    return passed("Under the slope where bytes are short, under the flat roof where they are not.")


def ask_about_the_roof(intensity: float, machine: dict[str, Any], got: float) -> str:
    """Choose a question by what the number looks like."""
    peak, slope = machine["flops_per_second"], machine["bytes_per_second"] * intensity
    if abs(got - max(peak, slope)) <= ROUNDING * max(peak, slope):
        if peak < slope:
            return "Can it calculate faster than it calculates when nothing keeps it waiting?"
        return f"How many FLOPs do the bytes of one second bring, at {intensity:.4g} for each byte?"
    if abs(got - machine["bytes_per_second"]) <= ROUNDING * machine["bytes_per_second"]:
        return "Are these FLOPs a second, or bytes?"
    if got < min(peak, slope):
        return "Must a machine stop reading while it calculates?"
    return "What can it calculate in a second, and what can it be given to calculate?"


def lower_roof(intensity: float, machine: dict[str, Any]) -> float:
    """Turn the seconds for one byte and its FLOPs, whichever takes longer, into a rate."""
    to_move = 1 / machine["bytes_per_second"]
    to_calculate = intensity / machine["flops_per_second"]
    return intensity / max(to_move, to_calculate)


roof_has_two_parts = Check(
    "roof_has_two_parts",
    ("attainable",),
    draw_intensities,
    probe_attainable,
    judge_attainable,
    evidence=lambda challenge: {
        "rates": [[(int, float, str)] * len(case["intensities"]) for case in challenge["cases"]]
    },
    truth=lower_roof,
    tolerance=ROUNDING,
)


# --- bound_by ------------------------------------------------------------------------------------


def draw_costs(seed: int) -> Challenge:
    """Draw costs left and right of a machine's ridge.

    In some the weights alone lie right of it, and the cache, or the activations, pull the whole to
    the left.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for heavy, side in (
        ("weight_bytes", 0.2),
        ("weight_bytes", 5.0),
        ("kv_read_bytes", 0.4),
        ("kv_written_bytes", 0.4),
        ("activation_bytes", 0.4),
        ("kv_read_bytes", 2.5),
    ):
        machine = draw_machine(rng)
        parts = ("weight_bytes", "kv_read_bytes", "kv_written_bytes", "activation_bytes")
        cost = {name: int(rng.integers(1_000, 9_000)) for name in parts}
        cost[heavy] = int(rng.integers(10**7, 10**8))
        cost["flops"] = int(side * balance_of(machine) * sum(cost.values()))
        drawn.append({"machine": machine, "cost": cost})
    return {"cases": drawn}


def probe_bound(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    answers = []
    for case in challenge["cases"]:
        answer = student.bound_by(Cost(**case["cost"]), Machine(**case["machine"]))
        answers.append(str(answer) if isinstance(answer, str) else f"a {type(answer).__name__}")
    return {"answers": answers}


def judge_bound(challenge: Challenge, evidence: Evidence, truth: Bound) -> Verdict:
    for case, got in zip(challenge["cases"], evidence["answers"], strict=True):
        cost, machine = case["cost"], case["machine"]
        parts = {name: n for name, n in cost.items() if name != "flops"}
        moved, right = sum(parts.values()), truth(cost, machine)
        given = (
            f"{cost['flops']:,} FLOPs and {moved:,} bytes "
            f"({', '.join(f'{name} {n:,}' for name, n in parts.items())}) on a "
            f"machine of {balance_of(machine):.4g} FLOP/byte"
        )
        if got not in ("memory", "compute"):
            return failed(
                f'{given}: bound_by gave {got!r}; wanted is "memory" or "compute". Which of the '
                f"two words do you return?"
            )
        if got != right:
            both = (
                f"calculating takes {cost['flops'] / machine['flops_per_second']:.3g} s, moving "
                f"the bytes {moved / machine['bytes_per_second']:.3g} s"
            )
            return failed(f"{given}: you say {got!r}, but {both}. Which of the two is waited for?")
    return passed("What takes longer is what is waited for.")


def slower_part(cost: dict[str, int], machine: dict[str, Any]) -> str:
    """Name what takes longer: to move the bytes, or to calculate."""
    flops = cost["flops"]
    seconds = {
        "memory": (sum(cost.values()) - flops) / machine["bytes_per_second"],
        "compute": flops / machine["flops_per_second"],
    }
    return max(seconds, key=seconds.get)


bound_is_the_lower_roof = Check(
    "bound_is_the_lower_roof",
    ("bound_by",),
    draw_costs,
    probe_bound,
    judge_bound,
    evidence=lambda challenge: {"answers": [str] * len(challenge["cases"])},
    truth=slower_part,
)
