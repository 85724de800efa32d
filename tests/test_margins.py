"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above."""

import numpy as np

from autograder import oracle
from autograder.bugs.exhibit import assemble
from autograder.bugs.kv_cache import BUGS, VARIANTS
from autograder.checks.kv_cache import CHECKS
from course.checks.check import Challenge, functions_of
from course.checks.drawing import TOLERANCE

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
