"""Why a timer may be off by as much as it may: right ones stay far below it, wrong ones go far above.

A timer's number is compared with the median of its own readings, as a part of that. Whoever reads the
clock at a wrong moment, or calls too often, is wrong by more than any number.
"""

import statistics

import numpy as np
import pytest

from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import bugs_of, variants_of
from autograder.lessons.roofline.hidden import CHECKS
from course.checks.check import Check, observe
from course.checks.roofline.timing import READING, look, wrong_end, wrong_start

pytestmark = pytest.mark.slow

SEEDS = range(20)
TIMERS = [check for check in CHECKS.values() if check.needs == ("time_on_device",)]
ORDER = {"clock_waits_for_the_work": wrong_end, "warm_up_is_not_timed": wrong_start}


def error_of_timer(answer: dict, check: Check, seed: int) -> float:
    """Measure how far a timer is off at most, as a part of the right seconds; infinite for a wrong
    number of calls, and for readings at a wrong moment."""
    challenge, names = check.challenge(seed), assemble("roofline", answer)
    timers, wrong = look(challenge, observe(check.probe, names, check.needs, challenge)[0])
    asks = ORDER.get(check.name, lambda seen: not seen.repeats())
    if wrong or any(asks(seen) for seen in timers):
        return np.inf
    right = [(seen, statistics.median(seen.repeats())) for seen in timers if seen.repeats()]
    return max(abs(seen.returned - seconds) / seconds for seen, seconds in right)


@pytest.mark.parametrize("check", TIMERS, ids=lambda check: check.name)
def test_right_timers_stay_below_a_quarter_of_the_tolerance_and_wrong_ones_ten_times_above(
    check, record_property
):
    right = [{}, *(variant.answer for variant in variants_of("roofline"))]
    wrong = [
        bug
        for bug in bugs_of("roofline")
        if bug.check == f"roofline.{check.name}" and bug.kind != "refusals"
    ]
    largest = max(error_of_timer(answer, check, seed) for answer in right for seed in SEEDS)
    effects = {
        bug.name: min(error_of_timer(bug.answer, check, seed) for seed in SEEDS) for bug in wrong
    }
    mildest = min(effects, key=effects.get)
    record_property(
        "margin",
        f"roofline.{check.name}: right timers are off by at most {largest:.0e}, wrong ones by at least "
        f"{effects[mildest]:.0e} ({mildest}); allowed: {READING:g}",
    )
    assert largest < READING / 4
    assert effects[mildest] > 10 * READING


def test_there_are_three_timers():
    assert len(TIMERS) == 3
