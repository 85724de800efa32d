"""Why a timer may be off by as much as it may: right ones stay far below it, wrong ones go far above.

A reading is compared as a part of the right seconds. Calls that differ by a tenth cannot be a hundred
tolerances apart, as `test_margins` wants it of other numbers, so timers are measured here.
"""

import statistics

import numpy as np
import pytest

from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import bugs_of, variants_of
from autograder.lessons.roofline.hidden import CHECKS
from course.checks.check import Check, observe
from course.checks.roofline.timing import right_seconds

pytestmark = pytest.mark.slow

SEEDS = range(20)
TIMERS = [check for check in CHECKS.values() if check.needs == ("time_on_device",)]


def error_of_timer(answer: dict, check: Check, seed: int) -> float:
    """Measure how far a timer is off at most, as a part of the right seconds; infinite for a wrong
    number of calls."""
    challenge, names = check.challenge(seed), assemble("roofline", answer)
    readings = observe(check.probe, names, check.needs, challenge)[0]["readings"]
    errors = []
    for case, seen in zip(challenge["cases"], readings, strict=True):
        if seen["calls"] != case["warmup"] + case["repeats"]:
            return np.inf
        right = right_seconds(case, statistics.median)
        errors.append(abs(seen["seconds"] - right) / right)
    return max(errors)


@pytest.mark.parametrize("check", TIMERS, ids=lambda check: check.name)
def test_right_timers_stay_below_a_quarter_of_the_tolerance_and_wrong_ones_ten_times_above(
    check, record_property
):
    right = [{}, *(variant.answer for variant in variants_of("roofline"))]
    wrong = [bug for bug in bugs_of("roofline") if bug.check == f"roofline.{check.name}"]
    largest = max(error_of_timer(answer, check, seed) for answer in right for seed in SEEDS)
    effects = {
        bug.name: min(error_of_timer(bug.answer, check, seed) for seed in SEEDS) for bug in wrong
    }
    mildest = min(effects, key=effects.get)
    record_property(
        "margin",
        f"roofline.{check.name}: right timers are off by at most {largest:.0e}, wrong ones by at least "
        f"{effects[mildest]:.0e} ({mildest}); allowed: {check.tolerance:g}",
    )
    assert largest < check.tolerance / 4
    assert effects[mildest] > 10 * check.tolerance


def test_there_are_three_timers():
    assert len(TIMERS) == 3
