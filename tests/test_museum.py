"""The museum tests the tests: every wrong answer fails where it must, every right one passes."""

import importlib
from collections.abc import Callable

import pytest
from submissions import ORDER

from autograder import lessons as hidden
from autograder.lessons import hidden_checks
from autograder.lessons.assembly import assemble
from autograder.lessons.exhibits import Variant, bugs_of, variants_of
from autograder.lessons.reach import within_reach
from course.checks.check import Check

SEEDS = range(20)
BUG_SEEDS = range(5)
"""Right answers must pass at many seeds, for one false alarm costs an honest student; a bug that slips
through at one of several is seen at few."""
VISIBLE_SEEDS = [0]
"""In a notebook every visible check draws the same."""


def exhibits(kind: Callable, *more: Variant) -> list:
    return [
        pytest.param(lesson, exhibit, id=f"{lesson}-{exhibit.name}")
        for lesson in ORDER
        for exhibit in [*more, *kind(lesson)]
    ]


def visible_checks(lesson: str) -> list[Check]:
    module = importlib.import_module(f"course.checks.{lesson}")
    return [value for value in vars(module).values() if isinstance(value, Check)]


def all_checks(lesson: str) -> list[tuple[Check, int]]:
    """Every check of the lesson with every seed that it is tried with."""
    visible = [(check, seed) for check in visible_checks(lesson) for seed in VISIBLE_SEEDS]
    return visible + [(check, seed) for check in hidden_checks(lesson).values() for seed in SEEDS]


@pytest.mark.parametrize("lesson", ORDER)
def test_the_reference_passes_every_check_and_one_bug_of_each_is_caught(lesson):
    """A quick look at what the two tests below show of all exhibits, at more seeds."""
    names = assemble(lesson, {})
    bugs = {bug.check: bug for bug in bugs_of(lesson)}
    for check in hidden_checks(lesson).values():
        verdict = check.judge(names, 0)
        assert verdict.score == 1, f"{check.name}: {verdict.message}"
        bug = bugs[f"{lesson}.{check.name}"]
        assert check.judge(assemble(lesson, bug.answer), 0).score < 1, bug.name


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "bug"), exhibits(bugs_of))
def test_every_bug_is_caught_by_the_check_named_for_it(lesson, bug):
    names = assemble(lesson, bug.answer)
    for seed in BUG_SEEDS:
        verdict = hidden.find(bug.check).judge(names, seed)
        assert verdict.score < 1, f"seed {seed}: {bug.story}"
        assert verdict.message


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "variant"), exhibits(variants_of, Variant("reference", {})))
def test_every_correct_answer_passes_every_check(lesson, variant):
    """Where no check reaches what a variant differs in, the reference says it all."""
    names = assemble(lesson, variant.answer)
    for check, seed in all_checks(lesson):
        if variant.answer and not set(variant.answer) & within_reach(lesson, check.needs):
            continue
        verdict = check.judge(names, seed)
        assert verdict.score == 1, f"{check.name}, seed {seed}: {verdict.message}"


@pytest.mark.parametrize("lesson", ORDER)
def test_every_hidden_check_has_a_bug_that_it_catches_and_a_visible_twin(lesson):
    names = set(hidden_checks(lesson))
    assert {bug.check for bug in bugs_of(lesson)} == {f"{lesson}.{name}" for name in names}
    assert names == {check.name for check in visible_checks(lesson)}
