"""Why the tolerance is what it is: right answers stay far below it, wrong ones go far above."""

import numpy as np

from autograder import oracle
from autograder.bugs import prefill_and_decode as phases
from autograder.bugs.exhibit import assemble
from autograder.bugs.kv_cache import BUGS, VARIANTS
from autograder.checks.kv_cache import CHECKS
from autograder.checks.prefill_and_decode import CHECKS as PHASES
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


def distances_of_lesson_04(answer: dict, seed: int) -> tuple[float, float]:
    """Largest differences from the oracle: of a chunked prefill, and of the rows of a ragged batch.
    Infinite where shapes differ or numbers are missing."""
    names = assemble("prefill_and_decode", answer)
    return prefill_distance(names, seed), ragged_distance(names, seed)


def prefill_distance(names: dict, seed: int) -> float:
    check = PHASES["every_chunk_size_gives_the_same_logits"]
    challenge = check.challenge(seed)
    evidence = check.probe(functions_of(names, check.needs), challenge)
    wanted = oracle.forward(challenge["state"], challenge["config"], challenge["prompt"])[:, -1]
    if any(np.shape(got) != wanted.shape for got in evidence["logits"]):
        return np.inf
    return max(float(np.abs(got - wanted).max()) for got in evidence["logits"])


def ragged_distance(names: dict, seed: int) -> float:
    check = PHASES["each_row_equals_itself_alone"]
    challenge = check.challenge(seed)
    evidence = check.probe(functions_of(names, check.needs), challenge)
    logits = np.nan_to_num(np.concatenate(evidence["logits"], axis=1), nan=np.inf)
    apart = 0.0
    for row, prompt in enumerate(challenge["prompts"]):
        text = np.concatenate([prompt, challenge["next"][row]])
        wanted = oracle.forward_row(challenge["state"], challenge["config"], text)
        apart = max(apart, float(np.abs(logits[row, -len(text) :] - wanted).max()))
    return apart


def test_chunks_and_ragged_rows_stay_below_a_quarter_of_the_tolerance(capsys):
    answers = [{}, *(variant.answer for variant in phases.VARIANTS)]
    largest = max(max(distances_of_lesson_04(answer, seed)) for seed in SEEDS for answer in answers)
    with capsys.disabled():
        print(f"\nlesson 04: right answers differ from float64 by at most {largest:.1e}")
    assert largest < TOLERANCE / 4


def test_wrong_masks_and_positions_differ_by_a_hundred_tolerances_and_more(capsys):
    wrong = {
        bug.name: bug.answer
        for bug in phases.BUGS
        if bug.name
        in (
            *("prefill_masks_top_left", "prefill_restarts_positions", "mask_shows_pads"),
            *("mask_shows_one_pad", "mask_hides_the_first_token", "positions_count_pads_in_steps"),
        )
    }
    assert len(wrong) == 6
    effects = {
        name: min(max(distances_of_lesson_04(answer, seed)) for seed in SEEDS)
        for name, answer in wrong.items()
    }
    mildest = min(effects, key=effects.get)
    with capsys.disabled():
        print(f"\nlesson 04: {mildest} moves a logit by at least {effects[mildest]:.1e}")
    assert effects[mildest] > 100 * TOLERANCE
