"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above.

Every check that compares real numbers is asked again at other tolerances: how small may it get before
a right answer fails, and how large before a wrong one passes? The end of the test run prints both.
"""

import importlib
import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from autograder.bugs import roofline
from autograder.bugs.exhibit import Variant, assemble
from autograder.checks import find
from autograder.checks import roofline as roofline_checks
from course.checks.check import functions_of
from course.checks.drawing import TOLERANCE
from course.checks.roofline import timing

COMPARING = [
    "mini_gpt.attention_sees_no_future",
    "mini_gpt.attention_weighs_by_softmax",
    "mini_gpt.query_heads_share_kv_heads",
    "mini_gpt.layer_joins_its_parts",
    "mini_gpt.layer_obeys_positions",
    "naive_decode.every_new_token_is_the_likeliest",
    "kv_cache.layer_equals_uncached",
    "kv_cache.every_split_equals_uncached",
    "kv_cache.cache_is_the_only_memory",
    "kv_cache.two_conversations_stay_apart",
    "gqa.grouped_equals_repeated",
    "gqa.masks_reach_every_head",
    "gqa.nothing_is_expanded",
    "gqa.pooled_heads_are_means",
]
SEEDS = range(5)
DOWN = [TOLERANCE / step for step in (1, 2, 3, 5, 10, 30, 100, 1000)]
UP = [TOLERANCE * 10**power for power in range(6)]
Score = Callable[[float], float]


@pytest.fixture
def scored(monkeypatch) -> Callable[[str, Mapping[str, Any], int], Score]:
    """The score of an answer at a check, as a function of the tolerance."""

    def scored(name: str, answer: Mapping[str, Any], seed: int) -> Score:
        lesson, check = name.split(".")[0], find(name)
        challenge = check.challenge(seed)
        functions = functions_of(assemble(lesson, answer), check.needs)
        evidence = check.probe(functions, challenge)

        def score(tolerance: float) -> float:
            for module in [module for key, module in sys.modules.items() if ".checks" in key]:
                if hasattr(module, "TOLERANCE"):
                    monkeypatch.setattr(module, "TOLERANCE", tolerance)
            try:
                return check.verdict(challenge, evidence).score
            finally:
                monkeypatch.undo()

        return score

    return scored


@pytest.mark.parametrize("name", COMPARING)
def test_right_answers_pass_at_a_third_of_the_tolerance(name, scored, record_property):
    museum = importlib.import_module(f"autograder.bugs.{name.split('.')[0]}")
    least = {}
    for variant in [Variant("the reference", {}), *museum.VARIANTS]:
        for seed in SEEDS:
            score = scored(name, variant.answer, seed)
            lost = next((rung for rung in DOWN if score(rung) < 1), 0.0)
            least[variant.name] = max(lost, least.get(variant.name, 0.0))
    roughest = max(least, key=least.get)
    record_property(
        "margin", f"{name}: right answers differ by less than {said(DOWN, least[roughest], -1)}"
    )
    assert least[roughest] < TOLERANCE / 3, roughest


@pytest.mark.parametrize("name", COMPARING)
def test_wrong_answers_fail_at_ten_tolerances(name, scored, record_property):
    museum = importlib.import_module(f"autograder.bugs.{name.split('.')[0]}")
    most = {}
    for bug in museum.BUGS:
        if bug.check != name:
            continue
        for seed in SEEDS:
            try:
                score = scored(name, bug.answer, seed)
            except Exception:  # it fails by stopping, whatever the tolerance
                continue
            passed = next((rung for rung in UP if score(rung) == 1), float("inf"))
            most[bug.name] = min(passed, most.get(bug.name, passed))
    mildest = min(most, key=most.get)
    record_property("margin", f"{name}: wrong answers fail below {most[mildest]:.0e} ({mildest})")
    assert most[mildest] > 10 * TOLERANCE, mildest


def said(rungs: list[float], lost: float, step: int) -> str:
    """The rung before the one at which it was lost."""
    return f"{rungs[rungs.index(lost) + step] if lost else rungs[-1]:.0e}"


# --- clocks of lesson 05 -------------------------------------------------------------------------

TIMERS = [
    roofline_checks.CHECKS[name]
    for name in (
        "clock_waits_for_the_work",
        "warm_up_is_not_timed",
        "one_slow_repeat_changes_nothing",
    )
]


def error_of_timer(answer: dict, check, seed: int) -> float:
    """Largest error of a timer, as a part of the right seconds; infinite for a wrong number of
    calls."""
    challenge, names = check.challenge(seed), assemble("roofline", answer)
    readings = check.probe(functions_of(names, check.needs), challenge)["readings"]
    errors = []
    for case, seen in zip(challenge["cases"], readings, strict=True):
        if seen["calls"] != case["warmup"] + case["repeats"]:
            return np.inf
        right = statistics.median(timing.measured_works(case)) + case["queueing"]
        errors.append(abs(seen["seconds"] - right) / right)
    return max(errors)


@pytest.mark.parametrize("check", TIMERS, ids=lambda check: check.name)
def test_right_timers_stay_below_a_quarter_of_the_tolerance_and_wrong_ones_ten_times_above(
    check, capsys
):
    right = [{}, *(variant.answer for variant in roofline.VARIANTS)]
    wrong = [bug for bug in roofline.BUGS if bug.check == f"roofline.{check.name}"]
    largest = max(error_of_timer(answer, check, seed) for answer in right for seed in SEEDS)
    effects = {
        bug.name: min(error_of_timer(bug.answer, check, seed) for seed in SEEDS) for bug in wrong
    }
    mildest = min(effects, key=effects.get)
    with capsys.disabled():
        print(
            f"\n{check.name}: right timers are off by at most {largest:.1e}, {mildest} by at least "
            f"{effects[mildest]:.1e}, allowed: {timing.TOLERANCE:g}"
        )
    assert largest < timing.TOLERANCE / 4
    assert effects[mildest] > 10 * timing.TOLERANCE
