"""The two roofs, for machines that are drawn: which one is lower, and where."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course.checks.check import Challenge, Evidence, Verdict, check, failed, passed
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.checks.recording import one_each
from course.checks.roofline import questions
from course.checks.roofline.misread import Answer, Result, first_wrong, question_about
from course.measure.costs import Cost
from course.measure.limits import Machine

Attainable = Callable[[float, dict[str, Any]], Answer]
"""FLOP/s at an intensity, on a machine given as a dict of its fields."""
Bound = Callable[[dict[str, int], dict[str, Any]], Answer]
"""The name of the lower roof, for a cost given as a dict of its fields."""
ROUNDING = 1e-6
"""Of the right rate: what a few float64 operations, or one of float32, may be off by."""


def draw_machine(rng: np.random.Generator, low: int, high: int) -> dict[str, Any]:
    """Draw a machine whose balance is a whole number from low to below high, and a third more."""
    bytes_per_second = float(rng.uniform(10, 3000)) * 1e9
    balance = int(rng.integers(low, high)) + 1 / 3
    return {
        "name": "a drawn machine",
        "flops_per_second": bytes_per_second * balance,
        "bytes_per_second": bytes_per_second,
    }


def balance_of(machine: dict[str, Any]) -> float:
    """Divide FLOP/s by bytes/s: where the ridge lies."""
    return Machine(**machine).balance


# --- attainable ----------------------------------------------------------------------------------


def draw_intensities(seed: int) -> Challenge:
    """Draw machines, the last with a ridge below 1, each with intensities below and at 1, left of its
    ridge, close to it on both sides, and right of it; and far from every ridge."""
    rng = np.random.default_rng(seed)
    drawn = []
    for low, high in ((2, 8), (20, 90), (150, 400), (0, 1)):
        machine = draw_machine(rng, low, high)
        ridge = balance_of(machine)
        intensities = [1.0, rng.uniform(0.1, 0.8), ridge * rng.uniform(0.6, 0.8)]
        intensities += [math.floor(ridge) + 0.2, 0.999 * ridge, 1.001 * ridge]
        intensities += [ridge * rng.uniform(3, 30), 1e-3, 1e5]
        drawn.append({"machine": machine, "intensities": [float(i) for i in intensities]})
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


@check(
    "attainable",
    draw=draw_intensities,
    probe=probe_attainable,
    evidence=lambda challenge: {
        "rates": [[NUMBER_OR_WORDS] * len(case["intensities"]) for case in challenge["cases"]]
    },
    tolerance=ROUNDING,
)
def roof_has_two_parts(
    challenge: Challenge, evidence: Evidence, truth: Attainable, tolerance: float
) -> Verdict:
    def close(got: Any, expected: float) -> bool:
        return not isinstance(got, str) and abs(got - expected) <= tolerance * abs(expected)

    results = []
    for case, rates in zip(challenge["cases"], evidence["rates"], strict=True):
        machine = case["machine"]
        for intensity, got in zip(case["intensities"], rates, strict=True):
            text = (
                f"A machine of {machine['flops_per_second']:.4g} FLOP/s and "
                f"{machine['bytes_per_second']:.4g} bytes/s, work of {intensity:.4g} FLOP/byte"
            )
            results.append(Result(text, got, **truth(intensity, machine)))
    if (one := first_wrong(results, close)) is None:
        return passed(
            "Under the slope where bytes are short, under the flat roof where they are not."
        )
    if isinstance(one.got, str):
        return failed(f"{one.case}: attainable gave {one.got}; wanted is one number. Which?")
    question = question_about(results, questions.ROOF, close) or questions.ROOF[""]
    return failed(f"{one.case}: {one.got:.9g}; it can reach {one.right:.9g}. {question}")


# --- bound_by ------------------------------------------------------------------------------------

COSTS = (
    ("weight_bytes", 0.2, (20, 90)),
    ("weight_bytes", 5.0, (2, 8)),
    ("weight_bytes", 0.97, (2, 8)),
    ("weight_bytes", 1.05, (2, 8)),
    ("weight_bytes", 0.6, (250, 400)),
    ("kv_read_bytes", 0.4, (20, 90)),
    ("kv_written_bytes", 0.4, (20, 90)),
    ("activation_bytes", 0.4, (20, 90)),
    ("kv_read_bytes", 2.5, (20, 90)),
)
"""What most bytes are, where a cost lies as a part of the machine's balance, and the bounds of that."""
NEAR = (-0.6, 1.05)
"""How far from the whole number below a balance a cost lies that whole numbers put on the right side."""


def draw_costs(seed: int) -> Challenge:
    """Draw costs left and right of a machine's ridge.

    Two lie so near that a tolerance puts them on the other side. In some the weights alone lie right
    of it, and the cache, or the activations, pull the whole to the left. Their order is drawn as well:
    a list of answers by heart fits no other challenge.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    costs = [*COSTS, *(("weight_bytes", near, (30, 40)) for near in NEAR)]
    for place in rng.permutation(len(costs)):
        heavy, side, bounds = costs[place]
        machine = draw_machine(rng, *bounds)
        if place >= len(COSTS):
            side = (math.floor(balance_of(machine)) + side) / balance_of(machine)
        parts = ("weight_bytes", "kv_read_bytes", "kv_written_bytes", "activation_bytes")
        cost = {name: int(rng.integers(1_000, 9_000)) for name in parts}
        cost[heavy] = int(rng.integers(10**10, 10**11))
        cost["flops"] = int(side * balance_of(machine) * sum(cost.values()))
        drawn.append({"machine": machine, "cost": cost})
    return {"cases": drawn}


def probe_bound(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    answers = []
    for case in challenge["cases"]:
        answer = student.bound_by(Cost(**case["cost"]), Machine(**case["machine"]))
        is_text = isinstance(answer, str)
        answers.append(f'"{answer:.40}"' if is_text else in_words(answer))
    return {"answers": answers}


@check(
    "bound_by",
    draw=draw_costs,
    probe=probe_bound,
    evidence=one_each(answers=str),
)
def bound_is_the_lower_roof(challenge: Challenge, evidence: Evidence, truth: Bound) -> Verdict:
    results = []
    for case, said in zip(challenge["cases"], evidence["answers"], strict=True):
        cost, machine = Cost(**case["cost"]), case["machine"]
        parts = ", ".join(f"{n} {size:,}" for n, size in case["cost"].items() if n != "flops")
        text = (
            f"{cost.flops:,} FLOPs and {cost.bytes:,} bytes ({parts}), {cost.intensity:.4g} "
            f"FLOP/byte, on a machine of {balance_of(machine):.4g} FLOP/byte"
        )
        results.append(Result(text, said.strip('"'), **truth(case["cost"], machine)))
        if said not in ('"memory"', '"compute"'):
            return failed(
                f'{text}: bound_by gave {said}; wanted is "memory" or "compute". Which of the two '
                f"words do you return?"
            )
    if (one := first_wrong(results)) is None:
        return passed("What takes longer is what is waited for.")
    return failed(
        f'{one.case}: you say "{one.got}", but it waits for the other one. '
        f"{question_about(results, questions.BOUND) or questions.BOUND['']}"
    )
