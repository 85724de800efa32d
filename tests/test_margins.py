"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above."""

import statistics

import numpy as np
import pytest

from autograder import oracle
from autograder.bugs import roofline
from autograder.bugs.exhibit import assemble
from autograder.bugs.kv_cache import BUGS, VARIANTS
from autograder.checks import roofline as roofline_checks
from autograder.checks.kv_cache import CHECKS
from course.checks.check import Challenge, functions_of
from course.checks.drawing import TOLERANCE
from course.checks.roofline import timing

CHECK = CHECKS["every_split_equals_uncached"]
SEEDS = range(20)


def distance(answer: dict, challenge: Challenge) -> float:
    """Largest difference from the oracle over every split; infinite where shapes differ."""
    names = assemble("kv_cache", answer)
    evidence = CHECK.probe(functions_of(names, CHECK.needs), challenge)
    wanted = oracle.forward(challenge["state"], challenge["config"], challenge["tokens"])
    logits = [np.concatenate(chunks, axis=1) for chunks in evidence["logits"]]
    if any(got.shape != wanted.shape for got in logits):
        return np.inf
    return max(float(np.abs(got - wanted).max()) for got in logits)


def test_right_answers_stay_below_a_quarter_of_the_tolerance(capsys):
    answers = [{}, *(variant.answer for variant in VARIANTS)]
    largest = max(distance(answer, CHECK.challenge(seed)) for seed in SEEDS for answer in answers)
    with capsys.disabled():
        print(
            f"\nright answers differ from float64 by at most {largest:.1e}, allowed: {TOLERANCE:g}"
        )
    assert largest < TOLERANCE / 4


def test_wrong_logits_differ_by_a_hundred_tolerances_and_more(capsys):
    bugs = [bug for bug in BUGS if bug.check == f"kv_cache.{CHECK.name}"]
    effects = {
        bug.name: min(distance(bug.answer, CHECK.challenge(s)) for s in SEEDS) for bug in bugs
    }
    mildest = min(effects, key=effects.get)
    with capsys.disabled():
        print(f"\nthe mildest mistake, {mildest}, moves a logit by at least {effects[mildest]:.1e}")
    assert effects[mildest] > 100 * TOLERANCE


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
