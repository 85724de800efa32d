"""The museum tests the tests: every wrong answer fails where it must, every right one passes."""

import importlib
from collections.abc import Iterator

import pytest
from submissions import ORDER

from autograder.lessons import find, hidden_checks
from autograder.lessons.exhibits import Variant, bugs_of, variants_of
from autograder.lessons.reach import reached_by
from autograder.run_record import decide
from course.checks.check import Check, checks_in

VISIBLE_SEED = 0
"""In a notebook every visible check draws the same."""


def visible_checks(lesson: str) -> dict[str, Check]:
    return checks_in(importlib.import_module(f"course.checks.{lesson}"))


@pytest.mark.parametrize("lesson", ORDER)
def test_every_bug_is_caught_by_the_check_named_for_it(lesson, selection, record):
    """One seed by day: a bug that slips through at one of several is found by night."""
    missed = []
    for bug in bugs_of(lesson):
        check = find(bug.check)
        for seed in selection.seeds(lesson, by_day=1, full=5):
            verdict = decide(
                check, check.challenge(seed), record.ask(lesson, bug.answer, check, seed)
            )
            if verdict.score == 1 or not verdict.message:
                missed.append(f"{bug.name}, seed {seed}: {bug.story}")
    assert missed == []


def right_answers(lesson: str, selection) -> Iterator[tuple[Variant, Check, int]]:
    """Every right answer with every check that reaches what it differs in, and the seeds: one false alarm
    costs an honest student, so at full strength they are many, and the visible twin's is one of them. The
    reference says it all where none reaches."""
    for variant in [Variant("the reference", {}), *variants_of(lesson)]:
        by_day, by_night = (1, 8) if variant.answer else (3, 20)
        for name, visible in visible_checks(lesson).items():
            hidden = hidden_checks(lesson)[name]
            if variant.answer and not reached_by(lesson, hidden.needs, [variant]):
                continue
            if not variant.answer or selection.is_full(lesson):
                yield variant, visible, VISIBLE_SEED
            for seed in selection.seeds(lesson, by_day, by_night):
                yield variant, hidden, seed


@pytest.mark.parametrize("lesson", ORDER)
def test_every_right_answer_passes_every_check(lesson, selection, record):
    false_alarms = []
    for variant, check, seed in right_answers(lesson, selection):
        reply = record.ask(lesson, variant.answer, check, seed)
        verdict = decide(check, check.challenge(seed), reply)
        if verdict.score < 1:
            false_alarms.append(f"{variant.name}, {check.name}, seed {seed}: {verdict.message}")
    assert false_alarms == []


@pytest.mark.parametrize("lesson", ORDER)
def test_every_hidden_check_has_a_bug_that_it_catches_and_a_visible_twin(lesson):
    names = set(hidden_checks(lesson))
    assert {bug.check for bug in bugs_of(lesson)} == {f"{lesson}.{name}" for name in names}
    assert names == set(visible_checks(lesson))


def test_a_copy_that_a_product_makes_is_explained(record):
    (bug,) = [b for b in bugs_of("latent_attention") if b.name == "rows_broadcast_over_heads"]
    check = find(bug.check)
    reply = record.ask("latent_attention", bug.answer, check, 0)
    message = decide(check, check.challenge(0), reply).message
    assert "contiguous" in message
    assert "This is a copy; a product that broadcasts makes one, too." in message
