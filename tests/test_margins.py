"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above.

Every check that compares real numbers is asked again at other tolerances: how small may it get before
a right answer fails, and how large before a wrong one passes? The end of the test run prints both.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from submissions import ORDER

from autograder.lessons import find, hidden_checks
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import Variant, bugs_of, variants_of
from course.checks.check import observe

pytestmark = pytest.mark.slow

COMPARING = [
    f"{lesson}.{check.name}"
    for lesson in ORDER
    for check in hidden_checks(lesson).values()
    if check.tolerance is not None and check.needs != ("time_on_device",)
]
"""The checks that have a tolerance, but for those of timers: see test_margins_of_timers.py."""
MANY = "kv_cache.every_split_equals_uncached"
"""On this one all later lessons build: it is asked with more seeds."""
DOWN = [1 / step for step in (1, 2, 3, 5, 10, 30, 100, 1000)]
UP = [10**power for power in range(6)]
"""Other tolerances, as multiples of the check's own."""
Score = Callable[[float], float]


def seeds(name: str) -> range:
    return range(20 if name == MANY else 5)


def scored(name: str, answer: Mapping[str, Any], seed: int) -> Score:
    """The score of an answer at a check, as a function of the tolerance in multiples of its own."""
    lesson, check = name.split(".")[0], find(name)
    challenge = check.challenge(seed)
    evidence, broken = observe(check.probe, assemble(lesson, answer), check.needs, challenge)

    def score(times: float) -> float:
        wider = replace(check, tolerance=times * check.tolerance)
        return wider.decide(challenge, evidence, broken).score

    return score


@pytest.mark.parametrize("name", COMPARING)
def test_right_answers_pass_at_a_quarter_of_the_tolerance(name, record_property):
    lesson = name.split(".")[0]
    least = {}
    for variant in [Variant("the reference", {}), *variants_of(lesson)]:
        for seed in seeds(name):
            score = scored(name, variant.answer, seed)
            lost = next((rung for rung in DOWN if score(rung) < 1), 0.0)
            least[variant.name] = max(lost, least.get(variant.name, 0.0))
    roughest = max(least, key=least.get)
    record_property(
        "margin",
        f"{name}: right answers differ by less than {said(DOWN, least[roughest], -1)} of it",
    )
    assert least[roughest] < 1 / 4, roughest


@pytest.mark.parametrize("name", COMPARING)
def test_wrong_answers_fail_at_a_hundred_tolerances(name, record_property):
    lesson = name.split(".")[0]
    most = {}
    for bug in bugs_of(lesson):
        if bug.check != name:
            continue
        for seed in seeds(name):
            try:
                score = scored(name, bug.answer, seed)
            except Exception:  # it fails by stopping, whatever the tolerance
                continue
            passed = next((rung for rung in UP if score(rung) == 1), float("inf"))
            most[bug.name] = min(passed, most.get(bug.name, passed))
    mildest = min(most, key=most.get)
    record_property(
        "margin", f"{name}: wrong answers fail below {most[mildest]:.0e} times it ({mildest})"
    )
    assert most[mildest] > 100, mildest


def said(rungs: list[float], lost: float, step: int) -> str:
    """The rung before the one at which it was lost."""
    return f"{rungs[rungs.index(lost) + step] if lost else rungs[-1]:.0e}"
