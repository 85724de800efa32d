"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above.

The replies of every check that compares real numbers are decided again at other tolerances: how small may
it get before a right answer fails, and how large before a wrong one passes? The end of the test run
prints both.
"""

from collections.abc import Callable
from math import inf

import pytest
from submissions import ORDER

from autograder.lessons import find, hidden_checks
from autograder.lessons.exhibits import Answer, Variant, bugs_of, variants_of
from autograder.lessons.reach import reached_by
from autograder.run_record import decide

pytestmark = pytest.mark.slow

COMPARING = [
    f"{lesson}.{check.name}"
    for lesson in ORDER
    for check in hidden_checks(lesson).values()
    if check.tolerance is not None and check.needs != ("time_on_device",)
]
"""The checks that have a tolerance, but for those of timers: see test_margins_of_timers.py."""
DOWN = [1 / step for step in (1, 2, 3, 5, 10, 30, 100, 1000)]
UP = [10**power for power in range(6)]
"""Other tolerances, as multiples of the check's own."""
Score = Callable[[float], float]


@pytest.fixture
def scores(record, selection) -> Callable[[str, Answer], list[Score]]:
    """For each seed, the score of an answer at a check as a function of the tolerance, in multiples of
    the check's own; none where the answer stops, whatever the tolerance."""

    def of(name: str, answer: Answer) -> list[Score]:
        lesson, check = name.split(".")[0], find(name)
        found = []
        for seed in selection.seeds(lesson, by_day=1, full=5):
            challenge, reply = check.challenge(seed), record.ask(lesson, answer, check, seed)
            if reply.get("error") is None:
                found.append(
                    lambda times, challenge=challenge, reply=reply: (
                        decide(check, challenge, reply, times * check.tolerance).score
                    )
                )
        return found

    return of


@pytest.mark.parametrize("name", COMPARING)
def test_right_answers_pass_at_a_quarter_of_the_tolerance(name, scores, record_property):
    needed, lesson = {}, name.split(".")[0]
    differing = reached_by(lesson, find(name).needs, variants_of(lesson))
    for variant in [Variant("the reference", {}), *differing]:
        lost = [first(DOWN, lambda rung, s=s: s(rung) < 1) for s in scores(name, variant.answer)]
        needed[variant.name] = max(rung or 0.0 for rung in lost)
    roughest = max(needed, key=needed.get)
    record_property(
        "margin",
        f"{name}: right answers differ by less than {rung_before(DOWN, needed[roughest])} of it",
    )
    assert needed[roughest] < 1 / 4, roughest


@pytest.mark.parametrize("name", COMPARING)
def test_wrong_answers_fail_at_a_hundred_tolerances(name, scores, record_property):
    passed = {
        bug.name: min(
            (first(UP, lambda rung, s=s: s(rung) == 1) or inf for s in scores(name, bug.answer)),
            default=inf,
        )
        for bug in bugs_of(name.split(".")[0])
        if bug.check == name
    }
    mildest = min(passed, key=passed.get)
    record_property(
        "margin", f"{name}: wrong answers fail below {passed[mildest]:.0e} times it ({mildest})"
    )
    assert passed[mildest] > 100, mildest


def first(rungs: list[float], holds: Callable[[float], bool]) -> float | None:
    """The first rung from which on something holds; None where it does not even on the last."""
    return next(filter(holds, rungs)) if holds(rungs[-1]) else None


def rung_before(rungs: list[float], lost: float) -> str:
    return f"{rungs[rungs.index(lost) - 1] if lost else rungs[-1]:.0e}"
